#include <algorithm>

#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

/// A Concat of one value again and again.
ir::Node* repeated(const Value* value) {
  ir::Node* concat = producer_of(value, "Concat");
  if (concat == nullptr || concat->input_count() < 2) return nullptr;
  for (std::size_t i = 1; i < concat->input_count(); ++i) {
    if (concat->find_input(i) != concat->find_input(0)) return nullptr;
  }
  return shape_of(concat->input(0)) ? concat : nullptr;
}

void write_again(Rewriter& rewriter, const ir::Node& concat, Value& part, std::int64_t axis) {
  const std::vector<Value*> parts(concat.input_count(), &part);
  Value& old = rewriter.root().output();
  rewriter.replace(old, rewriter.op("Concat", parts, {{"axis", axis}}, old.type()));
}

/// Elementwise, so that it may be computed on one part.
Match match_elementwise(const Facts& facts, ir::Node& node) {
  const std::size_t operand = node.input_count() == 2 && repeated(node.find_input(0)) == nullptr ? 1 : 0;
  const ir::Node* concat = repeated(node.find_input(operand));
  if (concat == nullptr) return Match::no("the operand does not repeat itself");
  Value& part = concat->input(0);
  const bool is_scalar = node.input_count() < 2 || facts.number(node.find_input(1 - operand));
  if (!is_scalar || !same_shape(node.input(operand), node.output()))
    return Match::no("the other operand has several elements");
  return Match([=, &node, &part](Rewriter& rewriter) {
    std::vector<Value*> inputs = {&part};
    if (node.input_count() == 2)
      inputs.insert(operand == 0 ? inputs.end() : inputs.begin(), node.find_input(1 - operand));
    Value& once =
        rewriter.op(node.op(), inputs, attributes_of(node), ir::Type::tensor(node.output().dtype(), shape_of(part)));
    write_again(rewriter, *concat, once, int_attribute(*concat, "axis", 0));
  });
}

/// The Expand in front of one Reshape at the most, if it stretches an axis.
ir::Node* stretched(const Value* value) {
  const ir::Node* joined = producer_of(value, "Reshape");
  ir::Node* expand = producer_of(joined ? joined->find_input(0) : value, "Expand");
  if (expand == nullptr || !shape_of(expand->input(0)) || !shape_of(expand->output())) return nullptr;
  const bool has_rank_of_result = shape_of(expand->input(0))->size() == shape_of(expand->output())->size();
  return has_rank_of_result && !same_shape(expand->input(0), expand->output()) ? expand : nullptr;
}

/// Elementwise on one operand, so that it may be computed before the elements are repeated.
Match match_stretched(const Facts&, ir::Node& node) {
  const ir::Node* expand = stretched(node.find_input(0));
  if (expand == nullptr) return Match::no("the operand is not stretched");

  return Match([=, &node](Rewriter& rewriter) {
    // Behind an Unsqueeze in front of it, too: the tables of rotations are then seen as they are.
    const ir::Node* widened = producer_of(&expand->input(0), "Unsqueeze");
    Value& part = widened ? widened->input(0) : expand->input(0);
    const DType dtype = node.output().dtype();
    Value* made = &rewriter.op(node.op(), {&part}, attributes_of(node), ir::Type::tensor(dtype, shape_of(part)));
    if (widened) {
      made = &rewriter.op("Unsqueeze", {made, &widened->input(1)}, {},
                          ir::Type::tensor(dtype, shape_of(expand->input(0))));
    }

    made = &rewriter.op("Expand", {made, &expand->input(1)}, {}, ir::Type::tensor(dtype, shape_of(expand->output())));
    if (const ir::Node* joined = producer_of(node.find_input(0), "Reshape")) {
      ir::AttributeList zero = {{"allowzero", int_attribute(*joined, "allowzero", 0)}};
      made = &rewriter.op("Reshape", {made, &joined->input(1)}, std::move(zero), node.output().type());
    }
    rewriter.replace(node.output(), *made);
  });
}

Match match_unsqueezed(const Facts& facts, ir::Node& node) {
  const ir::Node* concat = repeated(node.find_input(0));
  const auto axes = facts.ints(node.find_input(1));
  if (concat == nullptr || !axes || !shape_of(node.output())) return Match::no("the operand does not repeat itself");

  const auto rank = static_cast<std::int64_t>(*node.output().type().rank());
  std::vector<std::int64_t> kept;  // where the operand's axes are afterwards
  std::vector<std::int64_t> added;
  for (const std::int64_t axis : *axes) added.push_back(axis < 0 ? axis + rank : axis);
  for (std::int64_t axis = 0; axis < rank; ++axis) {
    if (std::ranges::find(added, axis) == added.end()) kept.push_back(axis);
  }

  const auto axis = axis_from_start(node.input(0), int_attribute(*concat, "axis", 0));
  if (!axis) return Match::no("the axis is not known");
  const std::int64_t moved = kept.at(static_cast<std::size_t>(*axis));
  ir::Shape shape = *shape_of(node.output());
  shape[static_cast<std::size_t>(moved)] = *dim(concat->input(0), *axis);

  return Match([=, &node](Rewriter& rewriter) {
    const auto type = ir::Type::tensor(node.output().dtype(), shape);
    write_again(rewriter, *concat, rewriter.op("Unsqueeze", {&concat->input(0), &node.input(1)}, {}, type), moved);
  });
}

}  // namespace

void populate_repeated(PatternTable& table) {
  table.add({.name = "elementwise_of_repeated",
             .matches = "an elementwise operator on a `Concat` of one tensor with itself",
             .makes = "the `Concat` of the operator's result: the work is done once",
             .roots = {"Cos", "Sin", "Cast", "Neg", "Mul", "Add"},
             .match = match_elementwise});
  table.add({.name = "elementwise_of_expanded",
             .matches = "`Cos`, `Sin` or `Cast` of an `Expand`, maybe reshaped",
             .makes = "the `Expand` of the operator's result: the work is done once",
             .roots = {"Cos", "Sin", "Cast"},
             .match = match_stretched});
  table.add({.name = "unsqueeze_of_repeated",
             .matches = "`Unsqueeze` of a `Concat` of one tensor with itself",
             .makes = "the `Concat` of the `Unsqueeze`",
             .roots = {"Unsqueeze"},
             .match = match_unsqueezed});
}

}  // namespace exportguard::optimizer
