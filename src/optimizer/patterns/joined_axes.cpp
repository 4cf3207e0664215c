#include <algorithm>

#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

/// A tensor [a, b, m, n] that is read as [a · b, m, n], as products of matrices with one batch axis want it.
struct Joined {
  Value* from = nullptr;
  ir::Shape apart;                    ///< [a, b, m, n]
  std::optional<std::int64_t> added;  ///< the axis of size 1 that `from` does not have
};

std::optional<Joined> joined_of(const Value* value) {
  const ir::Node* node = producer_of(value, "Reshape");
  if (!node || !has_rank(*value, 3) || !shape_of(node->input(0))) return std::nullopt;
  const ir::Shape& from = *shape_of(node->input(0));
  const ir::Shape& together = *shape_of(*value);
  if (from.size() < 3 || from[0] * from[1] != together[0]) return std::nullopt;
  const ir::Shape apart = {from[0], from[1], together[1], together[2]};
  if (from == apart) return Joined{&node->input(0), apart, std::nullopt};
  for (const std::int64_t axis : {2, 3}) {
    ir::Shape without = apart;
    without.erase(without.begin() + axis);
    const bool is_added = from == without && apart[static_cast<std::size_t>(axis)] == ir::Dim(1);
    if (is_added) return Joined{&node->input(0), apart, axis};
  }
  return std::nullopt;
}

bool have_same_batch(const Joined& a, const Joined& b) { return a.apart[0] == b.apart[0] && a.apart[1] == b.apart[1]; }

Value& taken_apart(Rewriter& rewriter, const Joined& joined) {
  if (!joined.added) return *joined.from;
  const auto type = ir::Type::tensor(joined.from->dtype(), joined.apart);
  return rewriter.op("Unsqueeze", {joined.from, &rewriter.ints({*joined.added})}, {}, type);
}

/// The result with its first two axes as one, which a Reshape behind it often takes apart again.
void write_joined(Rewriter& rewriter, Value& apart) {
  const auto one_size = ir::Type::tensor(DType::kInt64, ir::Shape{1});
  Value& batch = rewriter.op("Mul", {&rewriter.size(apart, 0), &rewriter.size(apart, 1)}, {}, one_size);
  std::vector<Value*> sizes = {&batch, &rewriter.size(apart, 2), &rewriter.size(apart, 3)};
  Value& target = rewriter.op("Concat", sizes, {{"axis", 0}}, ir::Type::tensor(DType::kInt64, ir::Shape{3}));

  Value& old = rewriter.root().output();
  rewriter.replace(old, rewriter.op("Reshape", {&apart, &target}, {{"allowzero", 1}}, old.type()));
}

ir::Type apart_type(const ir::Node& node, const Joined& joined) {
  const ir::Shape& together = *shape_of(node.output());
  return ir::Type::tensor(node.output().dtype(), ir::Shape{joined.apart[0], joined.apart[1], together[1], together[2]});
}

// ------------------------------------------------------------------------------------------------ products

Match match_product(const Facts&, ir::Node& node) {
  const auto left = joined_of(node.find_input(0));
  const auto right = joined_of(node.find_input(1));
  if (!left || !right || !has_rank(node.output(), 3)) return Match::no("an operand has no two axes joined to one");
  if (!have_same_batch(*left, *right)) return Match::no("the operands join different axes");
  return Match([=, &node](Rewriter& rewriter) {
    std::vector<Value*> operands = {&taken_apart(rewriter, *left), &taken_apart(rewriter, *right)};
    write_joined(rewriter, rewriter.op("MatMul", std::move(operands), {}, apart_type(node, *left)));
  });
}

/// The rows and columns of each matrix swapped: the matrices themselves may lie along two axes as well.
Match match_transposed(const Facts&, ir::Node& node) {
  static const std::vector<std::int64_t> kSwap = {0, 2, 1};
  const auto* permutation = find_ints_attribute(node, "perm");
  const auto joined = joined_of(node.find_input(0));
  if (!joined || !permutation || *permutation != kSwap)
    return Match::no("it does not swap rows and columns behind two joined axes");
  const auto uses = node.output().uses();
  const bool is_factor =
      !uses.empty() && std::ranges::all_of(uses, [](const ir::Use* use) { return use->user().is("", "MatMul"); });
  if (!is_factor) return Match::no("it is read by something else than a product");
  return Match([=](Rewriter& rewriter) {
    write_joined(rewriter, rewriter.transpose(taken_apart(rewriter, *joined), {0, 1, 3, 2}));
  });
}

// ------------------------------------------------------------------------------------------------ between products

bool is_one_of(const std::string& op, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, op) != names.end();
}

/// What stands between a product and the next one: weights of attention on their way.
bool is_weight(const Value& value) {
  const ir::Node* node = value.producer();
  return node && node->domain().empty() &&
         is_one_of(node->op(), {"MatMul", "Mul", "Div", "Add", "Sub", "Max", "Where", "Softmax", "Tanh"});
}

Match match_softmax(const Facts&, ir::Node& node) {
  const auto joined = joined_of(node.find_input(0));
  if (!joined || !is_weight(*joined->from)) return Match::no("the operand is no product with two joined axes");
  const bool is_last = node.op() != "Softmax" || axis_from_start(node.output(), int_attribute(node, "axis", -1)) == 2;
  if (!is_last) return Match::no("it is over another axis than the last");
  return Match([=, &node](Rewriter& rewriter) {
    ir::AttributeList attributes;
    if (node.op() == "Softmax") attributes = {{"axis", -1}};
    write_joined(rewriter, rewriter.op(node.op(), {&taken_apart(rewriter, *joined)}, std::move(attributes),
                                       apart_type(node, *joined)));
  });
}

Match match_elementwise(const Facts& facts, ir::Node& node) {
  if (node.input_count() != 2 || !has_rank(node.output(), 3)) return Match::no("it has other operands");
  std::optional<Joined> operands[2];
  for (std::size_t i = 0; i < 2; ++i) operands[i] = joined_of(node.find_input(i));
  const std::size_t first = operands[0] ? 0 : 1;
  if (!operands[first]) return Match::no("no operand has two axes joined to one");
  const bool are_alike = operands[1 - first] ? have_same_batch(*operands[0], *operands[1])
                                             : facts.number(node.find_input(1 - first)).has_value();
  if (!are_alike) return Match::no("the other operand is no number and joins no such axes");
  const bool is_between =
      std::ranges::any_of(operands, [](const auto& operand) { return operand && is_weight(*operand->from); });
  if (!is_between) return Match::no("no operand is a product");
  return Match([=, &node, left = operands[0], right = operands[1]](Rewriter& rewriter) {
    std::vector<Value*> inputs = {left ? &taken_apart(rewriter, *left) : &node.input(0),
                                  right ? &taken_apart(rewriter, *right) : &node.input(1)};
    write_joined(rewriter, rewriter.op(node.op(), std::move(inputs), {}, apart_type(node, left ? *left : *right)));
  });
}

}  // namespace

void populate_joined_axes(PatternTable& table) {
  table.add({.name = "product_of_joined",
             .matches = "`MatMul` of [a, b, m, k] and [a, b, k, n], both read as [a · b, …]",
             .makes = "`MatMul` of four axes, read as [a · b, m, n]",
             .roots = {"MatMul"},
             .match = match_product,
             .stage = Stage::kFuse});
  table.add({.name = "transpose_of_joined",
             .matches = "`Transpose` of the last two axes of [a, b, m, n] read as [a · b, m, n], for a product",
             .makes = "`Transpose` of four axes, read as [a · b, n, m]",
             .roots = {"Transpose"},
             .match = match_transposed,
             .stage = Stage::kFuse});
  table.add({.name = "softmax_of_joined",
             .matches = "`Softmax` over the last axis, or `Tanh`, of weights [a, b, m, n] read as [a · b, m, n]",
             .makes = "the same of four axes, read as [a · b, m, n]",
             .roots = {"Softmax", "Tanh"},
             .match = match_softmax,
             .stage = Stage::kFuse});
  table.add({.name = "elementwise_of_joined",
             .matches = "weights [a, b, m, n] read as [a · b, m, n], with a number or with a tensor read in that way",
             .makes = "the same of four axes, read as [a · b, m, n]",
             .roots = {"Add", "Sub", "Mul", "Div", "Max"},
             .match = match_elementwise,
             .stage = Stage::kFuse});
}

}  // namespace exportguard::optimizer
