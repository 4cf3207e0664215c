#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

enum Operand : std::uint8_t { kQuery, kKey, kValue, kMask, kPastKey, kPastValue };

/// Below this size of a head the further nodes are not worth the keys that are not read again: in onnxruntime they take
/// longer there. A graph for any runtime gets them where heads are so large that keys come from memory each time.
std::int64_t smallest_head(Target target) { return target == Target::kPortable ? 128 : 64; }

/// Heads of queries, of keys, and the size of one.
struct Heads {
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t size = 0;

  std::int64_t group() const { return queries / keys; }
};

std::optional<Heads> heads_of(const ir::Node& node) {
  const Value* query = node.find_input(kQuery);
  Heads heads{int_attribute(node, "q_num_heads", 0), int_attribute(node, "kv_num_heads", 0), 0};
  const bool are_groups = heads.queries > 0 && heads.keys > 0 && heads.queries % heads.keys == 0;
  if (query == nullptr || !has_rank(*query, 3) || !are_groups) return std::nullopt;
  const auto width = dim(*query, 2)->constant();
  heads.size = width ? *width / heads.queries : 0;
  return heads;
}

/// A mask of every query and key that is the same for all heads.
bool is_shared(const Value* mask, const Value& query) {
  if (mask == nullptr) return true;
  const auto& shape = shape_of(*mask);
  const bool has_rows = shape && shape->size() >= 2 && (*shape)[shape->size() - 2] == dim(query, 1);
  return has_rows && (shape->size() == 2 || (*shape)[shape->size() - 3] == ir::Dim(1));
}

Value& repeated_rows(Rewriter& rewriter, Value& mask, std::int64_t times) {
  ir::Shape shape = *shape_of(mask);
  shape[shape.size() - 2] = shape[shape.size() - 2] * ir::Dim(times);
  const std::vector<Value*> parts(static_cast<std::size_t>(times), &mask);
  return rewriter.op("Concat", parts, {{"axis", -2}}, ir::Type::tensor(mask.dtype(), std::move(shape)));
}

/// A Reshape to sizes that are put together: it is right without a sample or a query as well.
Value& reshaped(Rewriter& rewriter, Value& value, const std::vector<Value*>& sizes, ir::Shape shape) {
  const auto rank = ir::Dim(static_cast<std::int64_t>(shape.size()));
  Value& target = rewriter.op("Concat", sizes, {{"axis", 0}}, ir::Type::tensor(DType::kInt64, ir::Shape{rank}));
  return rewriter.op("Reshape", {&value, &target}, {{"allowzero", 1}},
                     ir::Type::tensor(value.dtype(), std::move(shape)));
}

/// [b, s, keys · group · size] as [b, group · s, keys · size].
Value& folded(Rewriter& rewriter, Value& query, const Heads& heads) {
  const ir::Shape& shape = *shape_of(query);
  const ir::Dim rows = shape[1] * ir::Dim(heads.group());
  Value& apart =
      rewriter.reshape(query, {shape[0], shape[1], ir::Dim(heads.keys), ir::Dim(heads.group()), ir::Dim(heads.size)});
  Value& swapped = rewriter.transpose(apart, {0, 3, 1, 2, 4});
  const auto one_size = ir::Type::tensor(DType::kInt64, ir::Shape{1});
  Value& count = rewriter.op("Mul", {&rewriter.size(query, 1), &rewriter.ints({heads.group()})}, {}, one_size);
  const std::int64_t width = heads.keys * heads.size;
  return reshaped(rewriter, swapped, {&rewriter.size(query, 0), &count, &rewriter.ints({width})},
                  {shape[0], rows, ir::Dim(width)});
}

/// The way back: [b, group · s, keys · size] as [b, s, keys · group · size].
Value& unfolded(Rewriter& rewriter, Value& result, const Heads& heads, std::int64_t size, Value& query) {
  ir::Shape shape = *shape_of(query);
  shape[2] = ir::Dim(heads.queries * size);
  const ir::Shape five = {shape[0], ir::Dim(heads.group()), shape[1], ir::Dim(heads.keys), ir::Dim(size)};
  Value& apart = reshaped(rewriter, result,
                          {&rewriter.size(query, 0), &rewriter.ints({heads.group()}), &rewriter.size(query, 1),
                           &rewriter.ints({heads.keys, size})},
                          five);
  return rewriter.reshape(rewriter.transpose(apart, {0, 2, 3, 1, 4}), shape);
}

/// onnxruntime goes through the keys once for each head of queries. As further queries of one head, all that share keys
/// are one product with them.
Match match_shared_keys(const Facts& facts, ir::Node& node) {
  const auto heads = heads_of(node);
  if (!heads) return Match::no("it does not have three axes with heads that are counted");
  if (heads->group() < 2) return Match::no("no head of keys has several of queries");
  if (heads->size < smallest_head(facts.target())) return Match::no("the heads are small");
  if (int_attribute(node, "is_causal", 0) != 0) return Match::no("the triangle has no rows for further queries");
  if (node.output_count() > 3 || node.input_count() > 6) return Match::no("it has further operands or results");
  Value* mask = node.find_input(kMask);
  if (!is_shared(mask, node.input(kQuery))) return Match::no("the mask differs from head to head, or is not known");
  const auto& result = shape_of(node.output());
  const auto width = result && result->size() == 3 ? (*result)[2].constant() : std::nullopt;
  if (!width) return Match::no("the size of the values is not known");
  return Match([=, &node, heads = *heads, size = *width / heads->queries](Rewriter& rewriter) {
    std::vector<Value*> operands;
    for (std::size_t i = 0; i < node.input_count(); ++i) operands.push_back(node.find_input(i));
    operands[kQuery] = &folded(rewriter, node.input(kQuery), heads);
    if (mask) operands[kMask] = &repeated_rows(rewriter, *mask, heads.group());

    std::vector<ir::NamedAttribute> attributes = attributes_of(node);
    std::erase_if(attributes, [](const auto& attribute) { return attribute.first == "q_num_heads"; });
    attributes.emplace_back("q_num_heads", heads.keys);
    const ir::Type type = node.output().type();
    std::vector<ir::Type> types = {ir::Type::tensor(
        type.dtype,
        ir::Shape{(*type.shape)[0], (*type.shape)[1] * ir::Dim(heads.group()), ir::Dim(heads.keys * size)})};
    for (std::size_t i = 1; i < node.output_count(); ++i) types.push_back(node.output(i).type());

    const auto made = rewriter.op_many("Attention", operands, std::move(attributes), std::move(types));
    rewriter.replace(node.output(), unfolded(rewriter, *made[0], heads, size, node.input(kQuery)));
    for (std::size_t i = 1; i < made.size(); ++i) rewriter.replace(node.output(i), *made[i]);
  });
}

}  // namespace

void populate_attention_folded(PatternTable& table) {
  table.add({.name = "attention_folded_queries",
             .matches = "`Attention` of three axes, of heads of 128 numbers and more (64 for onnxruntime), several of "
                        "queries to one of keys, with a mask for all heads or none",
             .makes = "`Attention` with the queries that share keys as further queries of one head: the keys are read "
                      "once",
             .roots = {"Attention"},
             .match = match_shared_keys,
             .stage = Stage::kPack,
             .opset = 23});
}

}  // namespace exportguard::optimizer
