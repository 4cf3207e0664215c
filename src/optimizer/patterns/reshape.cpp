#include <algorithm>

#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

/// The shape can be written as numbers and copies: each size is a positive constant, or that of the input at the same
/// position. Then the constant is right for every input.
bool is_copied(const ir::Shape& from, const ir::Shape& to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    const auto number = to[i].constant();
    const bool is_positive = number && *number > 0;
    const bool is_same = i < from.size() && from[i] == to[i];
    if (!is_positive && !is_same) return false;
  }
  return true;
}

/// As `is_copied`, but one size may be left to be inferred. The others are then positive numbers: beside a size of 0,
/// the inferred one would not be defined.
std::optional<std::vector<std::int64_t>> with_inferred(const ir::Shape& to) {
  std::vector<std::int64_t> sizes;
  for (const ir::Dim& dim : to) sizes.push_back(dim.constant().value_or(-1));
  const bool is_one = std::ranges::count(sizes, -1) == 1 && std::ranges::find(sizes, 0) == sizes.end();
  return is_one ? std::optional(sizes) : std::nullopt;
}

Match match_same_shape(const Facts&, ir::Node& node) {
  Value& from = node.input(0);
  if (!same_shape(from, node.output())) return Match::no("the shape changes");
  return Match([=, &node, &from](Rewriter& rewriter) { rewriter.replace(node.output(), from); });
}

/// The target in the types' words. Expand and a cast of the shape stay out: the types of the output tell it.
Match match_constant_target(const Facts& facts, ir::Node& node) {
  if (facts.constant(node.find_input(1)) != nullptr) return Match::no("the target is a constant already");
  Value& from = node.input(0);
  const auto& input = shape_of(from);
  const auto& output = shape_of(node.output());
  const auto& target = facts.sizes(node.find_input(1));
  if (!input || !output || !target) return Match::no("the shapes are not known");
  if (*target != *output) return Match::no("the target is not the shape of the output");
  if (is_copied(*input, *output)) {
    return Match([=, &node, to = *output, &from](Rewriter& rewriter) {
      rewriter.replace(node.output(), rewriter.reshape(from, to));
    });
  }
  auto inferred = with_inferred(*output);
  if (!inferred) return Match::no("more than one size would have to be inferred");
  return Match([=, &node, sizes = std::move(*inferred), type = node.output().type(), &from](Rewriter& rewriter) {
    rewriter.replace(node.output(), rewriter.op("Reshape", {&from, &rewriter.ints(sizes)}, {}, type));
  });
}

bool moves_no_element(const ir::Node* node) {
  return node && node->domain().empty() &&
         (node->op() == "Reshape" || node->op() == "Unsqueeze" || node->op() == "Squeeze" || node->op() == "Flatten");
}

/// Elements keep their order through any number of reshapes, so the first one's operand will do.
Match match_chain(const Facts&, ir::Node& node) {
  const ir::Node* before = node.input(0).producer();
  if (!moves_no_element(before)) return Match::no("the operand is not reshaped");
  Value& from = before->input(0);
  const auto& input = shape_of(from);
  const auto& output = shape_of(node.output());
  if (!input || !output) return Match::no("the shapes are not known");

  if (*input == *output) return Match([=, &node, &from](Rewriter& rewriter) { rewriter.replace(node.output(), from); });
  if (node.op() != "Reshape") return Match::no("an Unsqueeze or Squeeze says more than a Reshape");
  if (is_copied(*input, *output)) {
    return Match([=, &node, to = *output, &from](Rewriter& rewriter) {
      rewriter.replace(node.output(), rewriter.reshape(from, to));
    });
  }

  auto inferred = with_inferred(*output);
  if (!inferred) return Match::no("more than one size would have to be inferred");
  return Match([=, &node, sizes = std::move(*inferred), type = node.output().type(), &from](Rewriter& rewriter) {
    rewriter.replace(node.output(), rewriter.op("Reshape", {&from, &rewriter.ints(sizes)}, {}, type));
  });
}

/// Axes of size 1 that are put in, one call after the other.
Match match_unsqueezed_twice(const Facts& facts, ir::Node& node) {
  const ir::Node* before = producer_of(&node.input(0), "Unsqueeze");
  if (before == nullptr) return Match::no("the operand is not an Unsqueeze");
  const auto inner = facts.ints(before->find_input(1));
  const auto outer = facts.ints(node.find_input(1));
  const auto rank = before->input(0).type().rank();
  if (!inner || !outer || !rank) return Match::no("the axes are not known");

  const std::size_t count = *rank + inner->size() + outer->size();
  std::vector<bool> is_new(count, false);
  for (const std::int64_t axis : *outer)
    is_new.at(static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(count) : axis)) = true;
  std::vector<std::size_t> kept;  // axes of the result that the inner one's result has
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_new[i]) kept.push_back(i);
  }
  for (const std::int64_t axis : *inner)
    is_new[kept.at(static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(kept.size()) : axis))] = true;

  std::vector<std::int64_t> axes;
  for (std::size_t i = 0; i < count; ++i) {
    if (is_new[i]) axes.push_back(static_cast<std::int64_t>(i));
  }

  return Match([=, &node](Rewriter& rewriter) {
    rewriter.replace(node.output(),
                     rewriter.op("Unsqueeze", {&before->input(0), &rewriter.ints(axes)}, {}, node.output().type()));
  });
}

}  // namespace

void populate_reshape(PatternTable& table) {
  table.add({.name = "reshape_to_same",
             .matches = "`Reshape` to the shape that is there, as the types tell",
             .makes = "nothing",
             .roots = {"Reshape"},
             .match = match_same_shape});
  table.add({.name = "reshape_of_reshape",
             .matches = "`Reshape`, `Unsqueeze`, `Squeeze` and `Flatten` one after the other",
             .makes = "one `Reshape`, or nothing",
             .roots = {"Reshape", "Unsqueeze", "Squeeze"},
             .match = match_chain});
  table.add({.name = "unsqueeze_of_unsqueeze",
             .matches = "`Unsqueeze` of an `Unsqueeze`",
             .makes = "one `Unsqueeze`",
             .roots = {"Unsqueeze"},
             .match = match_unsqueezed_twice});
  table.add({.name = "reshape_to_constant",
             .matches = "`Reshape` to sizes that are computed, each a number or the input's own",
             .makes = "`Reshape` with a constant: 0 copies a size, -1 stands for one beside positive numbers",
             .roots = {"Reshape"},
             .match = match_constant_target});
}

}  // namespace exportguard::optimizer
