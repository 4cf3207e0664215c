#include <cmath>
#include <limits>

#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

/// x + 0 is x for integers. For floats it is only for -0: -0 + 0 is +0.
bool is_neutral_summand(const Facts& facts, const Value* value, DType dtype) {
  const auto number = facts.number(value);
  return number && *number == 0 && (!is_floating(dtype) || std::signbit(*number));
}

bool is_neutral(const Facts& facts, const ir::Node& node, std::size_t i) {
  const Value* value = node.find_input(i);
  const std::string& op = node.op();
  if (op == "Mul" || op == "Pow" || op == "Div") return (op == "Mul" || i == 1) && facts.is_number(value, 1);
  if (op == "Add") return is_neutral_summand(facts, value, node.output().dtype());
  if (op == "Sub") {  // x - (+0) is x, -0 included
    const auto number = facts.number(value);
    return i == 1 && number && *number == 0 && !(is_floating(node.output().dtype()) && std::signbit(*number));
  }
  return facts.is_number(value, op == "And" ? 1 : 0);  // And, Or, Xor of bools
}

Match match_neutral(const Facts& facts, ir::Node& node) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (!is_neutral(facts, node, i)) continue;
    Value& other = node.input(1 - i);
    if (!same_shape(other, node.output())) return Match::no("the neutral operand stretches the other one");
    if (other.dtype() != node.output().dtype()) return Match::no("the dtype changes");
    return Match([=, &node, &other](Rewriter& rewriter) { rewriter.replace(node.output(), other); });
  }
  return Match::no("no operand is neutral");
}

/// A tensor that is one bool everywhere, whatever its sizes.
bool is_true_everywhere(const Value* value) {
  const ir::Node* filled = producer_of(value, "ConstantOfShape");
  const ir::Attribute* content = filled ? filled->find_attribute("value") : nullptr;
  const auto* tensor = content ? std::get_if<ir::Tensor>(content) : nullptr;
  return tensor && tensor->dtype() == DType::kBool && tensor->to_ints() == std::vector<std::int64_t>{1};
}

Match match_and_true(const Facts&, ir::Node& node) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (!is_true_everywhere(node.find_input(i))) continue;
    Value& other = node.input(1 - i);
    if (!same_shape(other, node.output())) return Match::no("the true operand stretches the other one");
    return Match([=, &node, &other](Rewriter& rewriter) { rewriter.replace(node.output(), other); });
  }
  return Match::no("no operand is true everywhere");
}

Match match_identity(const Facts&, ir::Node& node) {
  return Match([=, &node](Rewriter& rewriter) { rewriter.replace(node.output(), node.input(0)); });
}

Match match_not_not(const Facts&, ir::Node& node) {
  const ir::Node* before = producer_of(&node.input(0), "Not");
  if (before == nullptr) return Match::no("the operand is not a Not");
  return Match([=, &node](Rewriter& rewriter) { rewriter.replace(node.output(), before->input(0)); });
}

Match match_single_concat(const Facts&, ir::Node& node) {
  if (node.input_count() != 1) return Match::no("there are several operands");
  return Match([=, &node](Rewriter& rewriter) { rewriter.replace(node.output(), node.input(0)); });
}

Match match_whole_slice(const Facts& facts, ir::Node& node) {
  const auto starts = facts.ints(node.find_input(1));
  const auto ends = facts.ints(node.find_input(2));
  const auto axes = facts.ints(node.find_input(3));
  const auto steps = facts.ints(node.find_input(4));
  const bool is_known = starts && ends && axes && shape_of(node.input(0)) && ends->size() == starts->size() &&
                        axes->size() == starts->size() && (!steps || steps->size() == starts->size());
  if (!is_known) return Match::no("the range is not known");
  for (std::size_t i = 0; i < starts->size(); ++i) {
    const auto size = dim(node.input(0), (*axes)[i]);
    const auto number = size ? size->constant() : std::nullopt;
    const bool reaches_end =
        (*ends)[i] == std::numeric_limits<std::int64_t>::max() || (number && (*ends)[i] >= *number);
    const bool is_whole = (*starts)[i] == 0 && reaches_end && (!node.find_input(4) || (steps && (*steps)[i] == 1));
    if (!is_whole) return Match::no("something is cut off");
  }
  return Match([=, &node](Rewriter& rewriter) { rewriter.replace(node.output(), node.input(0)); });
}

Match match_expand_to_same(const Facts& facts, ir::Node& node) {
  const auto& target = facts.sizes(node.find_input(1));
  const auto& shape = shape_of(node.input(0));
  if (!target || !shape || target->size() > shape->size())
    return Match::no("the shapes are not known, or axes are added");
  const std::size_t offset = shape->size() - target->size();
  for (std::size_t i = 0; i < target->size(); ++i) {
    const bool keeps = (*target)[i] == (*shape)[offset + i] || (*target)[i].constant() == 1;
    if (!keeps) return Match::no("an axis is stretched");
  }
  return Match([=, &node](Rewriter& rewriter) { rewriter.replace(node.output(), node.input(0)); });
}

/// Whether an elementwise operator stretches `value` to `shape` by itself.
bool is_stretched_to(const Value& value, const ir::Shape& shape) {
  const auto& own = shape_of(value);
  if (!own || own->size() > shape.size()) return false;
  const std::size_t offset = shape.size() - own->size();
  for (std::size_t i = 0; i < own->size(); ++i) {
    if ((*own)[i] != ir::Dim(1) && (*own)[i] != shape[offset + i]) return false;
  }
  return true;
}

bool has_other_of_shape(const ir::Node& node, std::size_t operand) {
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    if (i != operand && node.find_input(i) && same_shape(node.input(i), node.output())) return true;
  }
  return false;
}

Match match_expanded_operand(const Facts&, ir::Node& node) {
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    const ir::Node* expand = producer_of(node.find_input(i), "Expand");
    if (expand == nullptr || !shape_of(node.output())) continue;
    const bool is_needless = has_other_of_shape(node, i) && is_stretched_to(expand->input(0), *shape_of(node.output()));
    if (!is_needless) return Match::no("no other operand has the shape of the result");
    return Match([=, &node](Rewriter& rewriter) {
      std::vector<Value*> operands;
      for (std::size_t k = 0; k < node.input_count(); ++k)
        operands.push_back(k == i ? &expand->input(0) : node.find_input(k));
      rewriter.replace(node.output(), rewriter.op(node.op(), operands, attributes_of(node), node.output().type()));
    });
  }
  return Match::no("no operand is stretched by Expand");
}

}  // namespace

void populate_neutral(PatternTable& table) {
  table.add({.name = "neutral_operand",
             .matches = "x · 1, x / 1, x ^ 1, x + 0 and x - 0 (for floats with the zero that keeps the sign), and, or, "
                        "xor with their neutral bool; "
                        "the result has x's shape",
             .makes = "x",
             .roots = {"Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor"},
             .match = match_neutral});
  table.add({.name = "and_true",
             .matches = "`And` with a tensor that is true everywhere and does not stretch the other",
             .makes = "the other operand",
             .roots = {"And"},
             .match = match_and_true});
  table.add({.name = "identity",
             .matches = "`Identity`",
             .makes = "its operand",
             .roots = {"Identity"},
             .match = match_identity});
  table.add(
      {.name = "not_not", .matches = "`Not` of a `Not`", .makes = "nothing", .roots = {"Not"}, .match = match_not_not});
  table.add({.name = "concat_of_one",
             .matches = "`Concat` of a single tensor",
             .makes = "that tensor",
             .roots = {"Concat"},
             .match = match_single_concat});
  table.add({.name = "whole_slice",
             .matches = "`Slice` that cuts nothing off",
             .makes = "its operand",
             .roots = {"Slice"},
             .match = match_whole_slice});
  table.add({.name = "expand_to_same",
             .matches = "`Expand` to sizes that are there",
             .makes = "its operand",
             .roots = {"Expand"},
             .match = match_expand_to_same});
  table.add({.name = "expanded_operand",
             .matches = "an elementwise operator with an operand that `Expand` stretches to the shape of another one",
             .makes = "the operator, which stretches it",
             .roots = {"Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "LessOrEqual", "Greater",
                       "GreaterOrEqual", "Where"},
             .match = match_expanded_operand,
             .stage = Stage::kFinish});
}

}  // namespace exportguard::optimizer
