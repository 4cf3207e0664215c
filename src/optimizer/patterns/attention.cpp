#include <algorithm>

#include "exportguard/optimizer/rewriter.h"
#include "optimizer/heads.h"
#include "optimizer/order.h"
#include "optimizer/products.h"

namespace exportguard::optimizer {
namespace {

enum Operand : std::uint8_t { kQuery, kKey, kValue, kMask, kPastKey, kPastValue, kSizes };

std::vector<Value*> operands_of(const ir::Node& node) {
  std::vector<Value*> operands;
  for (std::size_t i = 0; i < node.input_count(); ++i) operands.push_back(node.find_input(i));
  return operands;
}

std::vector<ir::Type> output_types(const ir::Node& node) {
  std::vector<ir::Type> types;
  for (std::size_t i = 0; i < node.output_count(); ++i) types.push_back(node.output(i).type());
  return types;
}

/// The same node with other operands; its outputs take the place of the old ones.
void write_with(Rewriter& rewriter, const std::vector<Value*>& operands) {
  ir::Node& old = rewriter.root();
  const auto made = rewriter.op_many("Attention", operands, attributes_of(old), output_types(old));
  for (std::size_t i = 0; i < made.size(); ++i) rewriter.replace(old.output(i), *made[i]);
}

// ------------------------------------------------------------------------------------------------ repeated heads

/// Query heads share a head of keys and values in the operator itself: the query heads 0 to n-1 the first one, and so
/// on.
Match match_repeated_heads(const Facts&, ir::Node& node) {
  Value* key = repeated_heads(node.find_input(kKey));
  Value* value = repeated_heads(node.find_input(kValue));
  if (!key || !value) return Match::no("keys and values are not heads repeated");
  if (node.find_input(kPastKey)) return Match::no("it has a cache, whose heads would not be repeated");
  if (node.output_count() > 1) return Match::no("it gives keys and values, whose heads would not be repeated");
  if (!shares_heads(node.input(kQuery), key, value)) return Match::no("the number of heads is not known");
  return Match([=, &node](Rewriter& rewriter) {
    std::vector<Value*> operands = operands_of(node);
    operands[kKey] = key;
    operands[kValue] = value;
    write_with(rewriter, operands);
  });
}

// ------------------------------------------------------------------------------------------------ scale and mask

/// Queries, or queries as they came from the projection, times a positive number.
Match match_scaled_query(const Facts& facts, ir::Node& node) {
  Value& query = node.input(kQuery);
  const Product product = product_of(facts, &query);
  const bool is_scaled = product.factors.size() == 1 && product.number > 0 && product.factors.front() != &query;
  if (!is_scaled || !same_shape(query, *product.factors.front())) return Match::no("the queries are not scaled");

  const auto size = dim(query, -1);
  const ir::Attribute* given = node.find_attribute("scale");
  const double scale = float_attribute(node, "scale", 0);
  if (given == nullptr || !(scale > 0) || !size) return Match::no("the operator has no scale of its own");
  if (!is_scale(scale * product.number)) return Match::no("the scale would be no positive number of float32");

  return Match([=, &node](Rewriter& rewriter) {
    std::vector<Value*> operands = operands_of(node);
    operands[kQuery] = product.factors.front();
    std::vector<ir::NamedAttribute> attributes = attributes_of(node);
    std::erase_if(attributes, [](const auto& attribute) { return attribute.first == "scale"; });
    attributes.emplace_back("scale", scale * product.number);

    const auto made = rewriter.op_many("Attention", operands, std::move(attributes), output_types(node));
    for (std::size_t i = 0; i < made.size(); ++i) rewriter.replace(node.output(i), *made[i]);
  });
}

/// Whether every element is true, whatever the sizes.
bool is_true_everywhere(const Facts& facts, const Value* value) {
  while (producer_of(value, "Expand")) value = value->producer()->find_input(0);
  const ir::Tensor* tensor = facts.constant(value);
  if (!tensor || tensor->dtype() != DType::kBool || tensor->numel() > 65536) return false;
  const std::vector<std::int64_t> elements = tensor->to_ints();
  return std::ranges::find(elements, 0) == elements.end();
}

/// How many keys there are with those of the cache; nothing if that is not known.
std::optional<ir::Dim> key_count(const ir::Node& node) {
  const auto count = dim(node.input(kKey), -2);
  const Value* past = node.find_input(kPastKey);
  if (past == nullptr || !count) return count;
  const auto before = dim(*past, -2);
  return before ? std::optional(*before + *count) : std::nullopt;
}

/// From opset 24 on a mask may have fewer columns than there are keys, which hides those behind them.
bool has_column_for_each_key(const Facts& facts, const ir::Node& node) {
  constexpr int kShorterMasks = 24;
  const auto columns = dim(node.input(kMask), -1);
  return facts.opset() < kShorterMasks || (columns && columns == key_count(node));
}

Match match_open_mask(const Facts& facts, ir::Node& node) {
  if (!is_true_everywhere(facts, node.find_input(kMask))) return Match::no("the mask may hide a key");
  if (!has_column_for_each_key(facts, node)) return Match::no("the mask may be shorter than the keys");
  return Match([=, &node](Rewriter& rewriter) {
    std::vector<Value*> operands = operands_of(node);
    operands[kMask] = nullptr;
    while (operands.back() == nullptr) operands.pop_back();
    write_with(rewriter, operands);
  });
}

// ------------------------------------------------------------------------------------------------ cache

/// A Concat of two tensors of rank 4 along the sequence.
ir::Node* joined_cache(const Value* value) {
  ir::Node* concat = producer_of(value, "Concat");
  const bool fits = concat && concat->input_count() == 2 && has_rank(*value, 4) &&
                    axis_from_start(*value, int_attribute(*concat, "axis", 0)) == 2;
  return fits ? concat : nullptr;
}

std::ptrdiff_t operand_count(const ir::Node& node, const Value& value) {
  return std::ranges::count(operands_of(node), &value);
}

bool same_but_length(const Value& a, const Value& b) {
  const auto& left = shape_of(a);
  const auto& right = shape_of(b);
  return left && right && left->size() == 4 && right->size() == 4 && (*left)[0] == (*right)[0] &&
         (*left)[1] == (*right)[1] && (*left)[3] == (*right)[3];
}

Match match_cache(const Facts&, ir::Node& node) {
  if (node.find_input(kPastKey)) return Match::no("it has a cache already");
  if (node.find_input(kSizes)) return Match::no("it has a number of keys for each sample");
  if (int_attribute(node, "is_causal", 0) != 0) return Match::no("the triangle would move with the cache");

  const ir::Node* keys = joined_cache(node.find_input(kKey));
  const ir::Node* values = joined_cache(node.find_input(kValue));
  if (!keys || !values || keys == values) return Match::no("keys and values do not come behind a cache");
  const bool is_shape_known =
      same_but_length(keys->input(0), keys->input(1)) && same_but_length(values->input(0), values->input(1)) &&
      dim(keys->input(0), 2) == dim(values->input(0), 2) && dim(keys->input(1), 2) == dim(values->input(1), 2);
  if (!is_shape_known) return Match::no("the shapes of cache and new keys are not known");

  if (dim(keys->input(1), 2) != dim(node.input(kQuery), 2)) return Match::no("there may be no new key");
  const bool is_read_otherwise = operand_count(node, keys->output()) > 1 || operand_count(node, values->output()) > 1;
  if (is_read_otherwise) return Match::no("the operator reads the joined keys or values in another place as well");
  if (!is_read_behind(keys->output(), node) || !is_read_behind(values->output(), node))
    return Match::no("the new cache is read before");

  return Match([=, &node](Rewriter& rewriter) {
    std::vector<Value*> operands = operands_of(node);
    operands.resize(6, nullptr);
    operands[kKey] = &keys->input(1);
    operands[kValue] = &values->input(1);
    operands[kPastKey] = &keys->input(0);
    operands[kPastValue] = &values->input(0);
    const auto made = rewriter.op_many("Attention", operands, attributes_of(node),
                                       {node.output().type(), keys->output().type(), values->output().type()});
    rewriter.replace(node.output(), *made[0]);
    rewriter.replace(keys->output(), *made[1]);
    rewriter.replace(values->output(), *made[2]);
  });
}

// ------------------------------------------------------------------------------------------------ three axes

/// [batch, sequence, heads, size] behind a Transpose that brings the heads to the front.
Value* before_swap(const Value* value) {
  ir::Node* swap = value ? value->producer() : nullptr;
  if (!swaps_heads(swap)) return nullptr;
  const auto& shape = shape_of(swap->input(0));
  const bool is_known = shape && (*shape)[2].constant().value_or(0) > 0 && (*shape)[3].constant().value_or(0) > 0;
  return is_known ? &swap->input(0) : nullptr;
}

/// A Transpose that brings the heads behind the sequence, before or behind the batch.
bool joins_heads(const ir::Node& node) {
  static const std::vector<std::int64_t> kSequenceFirst = {2, 0, 1, 3};
  const auto* permutation = node.is("", "Transpose") ? find_ints_attribute(node, "perm") : nullptr;
  return swaps_heads(&node) || (permutation && *permutation == kSequenceFirst);
}

/// Readers of the result that swap heads back.
bool is_swapped_back(const Value& value) {
  const auto uses = value.uses();
  return !uses.empty() && std::ranges::all_of(uses, [](const ir::Use* use) { return joins_heads(use->user()); });
}

Match match_three_axes(const Facts&, ir::Node& node) {
  const bool counts_heads = node.find_attribute("q_num_heads") || node.find_attribute("kv_num_heads");
  if (!has_rank(node.input(kQuery), 4) || counts_heads) return Match::no("it has three axes already");

  Value* query = before_swap(node.find_input(kQuery));
  Value* key = before_swap(node.find_input(kKey));
  Value* value = before_swap(node.find_input(kValue));
  if (!query || !key || !value) return Match::no("an operand does not come with the heads behind the sequence");
  const bool has_one_batch = dim(*query, 0) == dim(*key, 0) && dim(*query, 0) == dim(*value, 0);
  if (!has_one_batch) return Match::no("the operands are not known to have as many samples");
  if (!is_swapped_back(node.output())) return Match::no("the result is wanted with the heads in front");

  return Match([=, &node](Rewriter& rewriter) {
    std::vector<Value*> operands = operands_of(node);
    operands[kQuery] = &heads_joined(rewriter, *query);
    operands[kKey] = &heads_joined(rewriter, *key);
    operands[kValue] = &heads_joined(rewriter, *value);

    const ir::Shape& q = *shape_of(*query);
    const ir::Dim size = (*shape_of(*value))[3];
    std::vector<ir::Type> types = output_types(node);
    types[0].shape = ir::Shape{q[0], q[1], q[2] * size};
    std::vector<ir::NamedAttribute> attributes = attributes_of(node);
    attributes.emplace_back("q_num_heads", *q[2].constant());
    attributes.emplace_back("kv_num_heads", *(*shape_of(*key))[2].constant());

    const auto made = rewriter.op_many("Attention", operands, std::move(attributes), std::move(types));
    Value& split = rewriter.reshape(*made[0], {q[0], q[1], q[2], size});
    rewriter.replace(node.output(), rewriter.transpose(split, {0, 2, 1, 3}));
    for (std::size_t i = 1; i < made.size(); ++i) rewriter.replace(node.output(i), *made[i]);
  });
}

}  // namespace

void populate_attention(PatternTable& table) {
  table.add({.name = "attention_grouped_heads",
             .matches = "`Attention` of keys and values whose heads are repeated",
             .makes = "`Attention` of the heads themselves",
             .roots = {"Attention"},
             .match = match_repeated_heads,
             .stage = Stage::kFuse,
             .opset = 23});
  table.add({.name = "attention_open_mask",
             .matches = "`Attention` with a mask of bools that is true everywhere",
             .makes = "`Attention` without a mask",
             .roots = {"Attention"},
             .match = match_open_mask,
             .stage = Stage::kFuse,
             .opset = 23});
  table.add({.name = "attention_scaled_query",
             .matches = "`Attention` of queries times a positive number",
             .makes = "`Attention` of the queries with that number in its scale",
             .roots = {"Attention"},
             .match = match_scaled_query,
             .stage = Stage::kFuse,
             .opset = 23});
  table.add({.name = "attention_cache",
             .matches = "`Attention` of a cache joined with new keys and values, as many as there are queries",
             .makes = "`Attention` with past and present as its own inputs and outputs",
             .roots = {"Attention"},
             .match = match_cache,
             .stage = Stage::kFuse,
             .opset = 23});
  table.add(
      {.name = "attention_three_axes",
       .matches = "`Attention` whose operands come as [batch, sequence, heads, size] and whose result goes back to it",
       .makes = "`Attention` of [batch, sequence, heads · size], without a `Transpose`",
       .roots = {"Attention"},
       .match = match_three_axes,
       .stage = Stage::kFuse,
       .opset = 23});
}

}  // namespace exportguard::optimizer
