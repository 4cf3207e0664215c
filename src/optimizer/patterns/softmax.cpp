#include <cmath>

#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

const Value* before_cast(const Value* value) {
  const ir::Node* cast = producer_of(value, "Cast");
  return cast ? cast->find_input(0) : value;
}

/// What `value` is the maximum of along that axis, which stays; null if the value is something else.
const Value* reduced_along(const Facts& facts, const Value* value, std::int64_t axis) {
  const ir::Node* largest = producer_of(value, "ReduceMax");
  const auto axes = largest ? facts.ints(largest->find_input(1)) : std::nullopt;
  const bool keeps_axis = axes && axes->size() == 1 && int_attribute(*largest, "keepdims", 1) == 1 &&
                          axis_from_start(*value, axes->front()) == axis;
  return keeps_axis ? largest->find_input(0) : nullptr;
}

/// The maximum without a choice that puts NaN where there is one along that axis of `x`, as torch has it.
const Value* without_nan(const Facts& facts, const Value* largest, const Value* x, std::int64_t axis) {
  const ir::Node* choice = producer_of(largest, "Where");
  const auto nan = choice ? facts.number(choice->find_input(1)) : std::nullopt;
  if (!nan || !std::isnan(*nan)) return largest;
  const Value* flags = reduced_along(facts, before_cast(choice->find_input(0)), axis);
  const ir::Node* looks = producer_of(before_cast(flags), "IsNaN");
  return looks && looks->find_input(0) == x ? choice->find_input(2) : largest;
}

/// softmax(x - max(x)): the kernel subtracts the maximum itself, and a NaN anywhere makes all of them NaN.
Match match_shifted(const Facts& facts, ir::Node& node) {
  const ir::Node* shifted = producer_of(node.find_input(0), "Sub");
  const auto axis = axis_from_start(node.output(), int_attribute(node, "axis", -1));
  if (!shifted || !axis) return Match::no("the operand is no difference");
  if (node.op() == "LogSoftmax" && node.output().dtype() == DType::kFloat64)
    return Match::no("onnxruntime's kernel for float64 makes no NaN of an infinite number");
  Value& x = shifted->input(0);
  const Value* largest = without_nan(facts, shifted->find_input(1), &x, *axis);
  const bool is_own = reduced_along(facts, largest, *axis) == &x && same_shape(x, node.output());
  if (!is_own) return Match::no("what is subtracted is not the maximum along the axis");
  return Match([=, &node, &x](Rewriter& rewriter) {
    rewriter.replace(node.output(), rewriter.op(node.op(), {&x}, attributes_of(node), node.output().type()));
  });
}

}  // namespace

void populate_softmax(PatternTable& table) {
  table.add({.name = "softmax_of_shifted",
             .matches = "`Softmax` or `LogSoftmax` of x - max(x) along its axis",
             .makes = "that of x",
             .roots = {"Softmax", "LogSoftmax"},
             .match = match_shifted});
}

}  // namespace exportguard::optimizer
