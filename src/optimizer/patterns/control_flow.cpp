#include <algorithm>

#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

// ------------------------------------------------------------------------------------------------ If

bool gives_values(const ir::Graph& branch, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (i >= branch.output_count() || branch.find_output(i) == nullptr) return false;
  }
  return branch.input_count() == 0;
}

Match match_known_condition(const Facts& facts, ir::Node& node) {
  const auto condition = facts.number(node.find_input(0));
  if (!condition) return Match::no("the condition is not known");
  const ir::Graph& branch = node.subgraph(*condition != 0 ? "then_branch" : "else_branch");
  if (!gives_values(branch, node.output_count())) return Match::no("the branch does not give a value for each output");
  return Match([=, &node, &branch](Rewriter& rewriter) {
    const std::vector<Value*> results = node.graph().splice(branch, {}, &node);
    for (std::size_t i = 0; i < node.output_count(); ++i) rewriter.replace(node.output(i), *results[i]);
  });
}

// ------------------------------------------------------------------------------------------------ Loop and Scan

bool is_one_of(const std::string& op, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, op) != names.end();
}

/// Sizes that cannot fail to broadcast.
bool stretches(const ir::Shape& a, const ir::Shape& b) {
  for (std::size_t i = 1; i <= std::min(a.size(), b.size()); ++i) {
    const ir::Dim& left = a[a.size() - i];
    const ir::Dim& right = b[b.size() - i];
    if (left != right && left != ir::Dim(1) && right != ir::Dim(1)) return false;
  }
  return true;
}

/// Runs for every operand of these types, so that it does no harm before a loop that is never entered.
bool is_total(const ir::Node& node) {
  const bool has_types = node.input_count() > 0 && node.output_count() == 1 && node.find_input(0);
  if (!has_types || !node.domain().empty()) return false;
  if (is_one_of(node.op(), {"Shape", "Size", "Transpose", "Identity", "Not", "Neg", "Abs", "Exp", "Sqrt", "Sin", "Cos",
                            "Tanh", "Sigmoid", "Relu", "Erf", "Softmax", "Reciprocal"}))
    return true;
  if (node.op() == "Cast") {
    const DType from = node.input(0).dtype();
    if (from == DType::kString || from == DType::kUndefined) return false;
    return is_floating(node.output().dtype()) || !is_floating(from);
  }
  const bool is_binary = is_one_of(node.op(), {"Add", "Sub", "Mul", "And", "Or", "Equal", "Less", "Greater"}) ||
                         (node.op() == "Div" && is_floating(node.output().dtype()));
  return is_binary && node.input_count() == 2 && shape_of(node.input(0)) && shape_of(node.input(1)) &&
         stretches(*shape_of(node.input(0)), *shape_of(node.input(1)));
}

/// What a turn of the loop computes from nothing that the turn has.
Match match_invariant(const Facts&, ir::Node& node) {
  ir::Node* loop = node.graph().parent();
  const bool is_inside = loop && (loop->is("", "Loop") || loop->is("", "Scan"));
  if (!is_inside) return Match::no("it is in no loop");
  if (!is_total(node)) return Match::no("it may fail, where the loop may have no turn");

  std::vector<Value*> inputs;
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    Value* input = node.find_input(i);
    if (input && &input->graph() == &node.graph() && !input->initializer())
      return Match::no("it reads what a turn has");
    inputs.push_back(input);
  }
  const bool is_visible = std::ranges::all_of(
      inputs, [&](const Value* input) { return input == nullptr || &input->graph() != &node.graph(); });
  if (!is_visible) return Match::no("it reads a constant of the loop's body");

  return Match([=, &node](Rewriter& rewriter) {
    ir::Node& made = loop->graph().insert_before(*loop, {.domain = node.domain(),
                                                         .op = node.op(),
                                                         .inputs = inputs,
                                                         .attributes = attributes_of(node),
                                                         .outputs = {node.output().type()},
                                                         .source = node.source()});
    rewriter.replace(node.output(), made.output());
  });
}

}  // namespace

void populate_control_flow(PatternTable& table) {
  table.add({.name = "if_known",
             .matches = "`If` with a constant condition",
             .makes = "the nodes of the branch that is taken",
             .roots = {"If"},
             .match = match_known_condition});
  table.add({.name = "loop_invariant",
             .matches = "an operator in the body of a `Loop` or `Scan` that reads nothing of the body and cannot fail",
             .makes = "the operator before the loop",
             .roots = {"Shape", "Size", "Transpose", "Identity", "Not",  "Neg", "Abs",     "Exp",        "Sqrt",
                       "Sin",   "Cos",  "Tanh",      "Sigmoid",  "Relu", "Erf", "Softmax", "Reciprocal", "Cast",
                       "Add",   "Sub",  "Mul",       "Div",      "And",  "Or",  "Equal",   "Less",       "Greater"},
             .match = match_invariant});
}

}  // namespace exportguard::optimizer
