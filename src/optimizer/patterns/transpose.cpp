#include <algorithm>

#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

using Permutation = std::vector<std::int64_t>;

/// The permutation of a Transpose; without the attribute the axes are reversed.
std::optional<Permutation> permutation_of(const ir::Node& node) {
  if (const auto* given = find_ints_attribute(node, "perm")) return *given;
  const auto rank = node.input(0).type().rank();
  if (!rank) return std::nullopt;
  Permutation reversed(*rank);
  for (std::size_t i = 0; i < *rank; ++i) reversed[i] = static_cast<std::int64_t>(*rank - 1 - i);
  return reversed;
}

Match match_identity(const Facts&, ir::Node& node) {
  const auto permutation = permutation_of(node);
  if (!permutation || !std::ranges::is_sorted(*permutation)) return Match::no("it moves an axis");
  return Match([=, &node](Rewriter& rewriter) { rewriter.replace(node.output(), node.input(0)); });
}

Match match_chain(const Facts&, ir::Node& node) {
  const ir::Node* before = producer_of(&node.input(0), "Transpose");
  if (before == nullptr) return Match::no("the operand is not a Transpose");
  const auto inner = permutation_of(*before);
  const auto outer = permutation_of(node);
  if (!inner || !outer || inner->size() != outer->size()) return Match::no("the permutations are not known");
  Permutation both;
  for (const std::int64_t axis : *outer) both.push_back((*inner)[static_cast<std::size_t>(axis)]);
  return Match([=, &node](Rewriter& rewriter) {
    Value& from = before->input(0);
    if (std::ranges::is_sorted(both)) return rewriter.replace(node.output(), from);
    rewriter.replace(node.output(), rewriter.op("Transpose", {&from}, {{"perm", both}}, node.output().type()));
  });
}

}  // namespace

void populate_transpose(PatternTable& table) {
  table.add({.name = "transpose_of_nothing",
             .matches = "`Transpose` that leaves every axis where it is",
             .makes = "nothing",
             .roots = {"Transpose"},
             .match = match_identity});
  table.add({.name = "transpose_of_transpose",
             .matches = "`Transpose` of a `Transpose`",
             .makes = "one `Transpose`, or nothing",
             .roots = {"Transpose"},
             .match = match_chain});
}

}  // namespace exportguard::optimizer
