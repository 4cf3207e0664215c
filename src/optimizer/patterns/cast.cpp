#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

int float_rank(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      return 1;
    case DType::kFloat32:
      return 2;
    case DType::kFloat64:
      return 3;
    default:
      return 0;
  }
}

/// Every value of `from` is one of `to`, so that a further cast gives the same from either.
bool holds_all(DType from, DType to) {
  if (from == to) return true;
  if (from == DType::kBool) return to != DType::kString && !is_complex(to);
  if (is_floating(from)) return float_rank(from) > 0 && float_rank(to) > float_rank(from);
  const bool is_wider_integer = is_integral(from) && is_integral(to) && bit_width(to) > bit_width(from);
  return is_wider_integer && (is_unsigned(from) || !is_unsigned(to));
}

Match match_same_dtype(const Facts&, ir::Node& node) {
  Value& from = node.input(0);
  const bool is_same =
      from.dtype() != DType::kUndefined && int_attribute(node, "to", 0) == static_cast<int>(from.dtype());
  if (!is_same) return Match::no("the dtype changes");
  return Match([=, &node, &from](Rewriter& rewriter) { rewriter.replace(node.output(), from); });
}

Match match_chain(const Facts&, ir::Node& node) {
  const ir::Node* before = producer_of(&node.input(0), "Cast");
  if (before == nullptr) return Match::no("the operand is not a Cast");
  Value& from = before->input(0);
  const DType middle = before->output().dtype();
  if (from.dtype() == DType::kUndefined || !holds_all(from.dtype(), middle)) return Match::no("the first Cast rounds");
  if (middle == DType::kBool && node.output().dtype() != DType::kBool)
    return Match::no("the first Cast tests for zero");
  return Match([=, &node, &from](Rewriter& rewriter) {
    if (from.dtype() == node.output().dtype()) return rewriter.replace(node.output(), from);
    rewriter.replace(node.output(), rewriter.op("Cast", {&from}, attributes_of(node), node.output().type()));
  });
}

}  // namespace

void populate_cast(PatternTable& table) {
  table.add({.name = "cast_to_same",
             .matches = "`Cast` to the dtype that is there",
             .makes = "nothing",
             .roots = {"Cast"},
             .match = match_same_dtype});
  table.add({.name = "cast_of_cast",
             .matches = "`Cast` of a `Cast` to a dtype that holds every value of the first",
             .makes = "one `Cast`, or nothing",
             .roots = {"Cast"},
             .match = match_chain});
}

}  // namespace exportguard::optimizer
