#include <algorithm>

#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

Match match_constant_sizes(const Facts& facts, ir::Node& node) {
  Value& value = node.output();
  if (value.dtype() != DType::kInt64) return Match::no("the result is no int64");
  const auto& sizes = facts.sizes(&value);
  if (!sizes) return Match::no("the sizes are not known");
  std::vector<std::int64_t> numbers;
  for (const SymExpr& size : *sizes) {
    if (!size.is_constant()) return Match::no("a size changes from run to run");
    numbers.push_back(*size.constant());
  }
  const bool is_scalar = has_rank(value, 0);
  if (is_scalar && numbers.size() != 1) return Match::no("the rank is not known");
  return Match([=, &value](Rewriter& rewriter) {
    Value& made =
        is_scalar ? rewriter.constant(ir::Tensor::scalar(numbers.front(), DType::kInt64)) : rewriter.ints(numbers);
    rewriter.replace(value, made);
  });
}

/// Equal sizes read off different tensors: reading them off an input makes them one.
Match match_size_of_input(const Facts& facts, ir::Node& node) {
  Value& from = node.input(0);
  if (from.is_input()) return Match::no("it reads an input already");
  const auto& sizes = facts.sizes(&node.output());
  if (!sizes || sizes->size() != 1 || sizes->front().is_constant()) return Match::no("it is not one size that changes");
  const auto start = axis_from_start(from, int_attribute(node, "start", 0));
  if (!start) return Match::no("the axis is not known");
  const ir::Graph* graph = &node.graph();
  while (graph->parent() != nullptr) graph = &graph->parent()->graph();
  const bool has_it = std::ranges::any_of(graph->inputs(), [&](const auto& input) {
    const auto& shape = shape_of(*input);
    return shape && std::ranges::find(*shape, sizes->front()) != shape->end();
  });
  if (!has_it) return Match::no("no input has that size");
  return Match([=, &node, &from, axis = static_cast<std::size_t>(*start)](Rewriter& rewriter) {
    rewriter.replace(node.output(), rewriter.size(from, axis));
  });
}

}  // namespace

void populate_sizes(PatternTable& table) {
  table.add(
      {.name = "constant_sizes",
       .matches = "arithmetic on sizes whose result the types tell",
       .makes = "a constant",
       .roots = {"Shape", "Concat", "Gather", "Slice", "Add", "Sub", "Mul", "Squeeze", "Unsqueeze", "Reshape", "Cast"},
       .match = match_constant_sizes});
  table.add({.name = "size_of_input",
             .matches = "`Shape` of a tensor, one size that an input of the graph has as well",
             .makes = "`Shape` of that input",
             .roots = {"Shape"},
             .match = match_size_of_input});
}

}  // namespace exportguard::optimizer
