#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

// Below this many elements another copy in the file is cheaper than a node.
constexpr std::int64_t kSmall = 4096;

bool reads_like(const ir::Node& node, const ir::Node& other) {
  const auto* perm = find_ints_attribute(node, "perm");
  const auto* others = find_ints_attribute(other, "perm");
  return other.is("", node.op()) && (perm == nullptr) == (others == nullptr) && (perm == nullptr || *perm == *others);
}

/// A weight that something else reads as it lies (an embedding tied to the head, for example) would be written twice.
bool would_be_written_twice(const Value& weight, const ir::Node& node) {
  const auto uses = weight.uses();
  return weight.initializer()->numel() > kSmall &&
         !std::ranges::all_of(uses, [&](const ir::Use* use) { return reads_like(node, use->user()); });
}

Match match_transposed(const Facts&, ir::Node& node) {
  Value& weight = node.input(0);
  const ir::Tensor* tensor = weight.initializer();
  if (tensor == nullptr) return Match::no("the operand is no weight");
  if (tensor->dtype() == DType::kString || bit_width(tensor->dtype()) < 8) return Match::no("its elements are packed");
  if (would_be_written_twice(weight, node)) return Match::no("the weight is read as it lies as well");
  std::vector<std::int64_t> permutation;
  for (std::size_t i = tensor->shape().size(); i-- > 0;) permutation.push_back(static_cast<std::int64_t>(i));
  if (const auto* given = find_ints_attribute(node, "perm")) permutation = *given;
  return Match([=, &node, &weight](Rewriter& rewriter) {
    const at::NoGradGuard no_grad;
    const at::Tensor view = weight.initializer()->aten().permute(permutation);
    rewriter.replace(node.output(), rewriter.view_of(weight, "transposed", ir::Tensor(view)));
  });
}

}  // namespace

void populate_weights(PatternTable& table) {
  table.add({.name = "transposed_weight",
             .matches = "`Transpose` of a weight that is read in no other way",
             .makes = "the weight in that layout, a view until its bytes are written",
             .roots = {"Transpose"},
             .match = match_transposed,
             .stage = Stage::kFinish});
}

}  // namespace exportguard::optimizer
