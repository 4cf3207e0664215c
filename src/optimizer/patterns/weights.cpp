#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>

#include "exportguard/common/sizes.h"
#include "exportguard/optimizer/rewriter.h"
#include "optimizer/parts.h"

namespace exportguard::optimizer {
namespace {

// Below this many elements another copy in the file is cheaper than a node.
constexpr std::int64_t kSmall = 4096;

bool is_viewed(const ir::Tensor* tensor) {
  return tensor && tensor->dtype() != DType::kString && bit_width(tensor->dtype()) >= 8;
}

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
  if (!is_viewed(tensor)) return Match::no("its elements are packed");
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

/// A weight that is only taken apart: each part is a view of it.
Match match_split(const Facts& facts, ir::Node& node) {
  Value& weight = node.input(0);
  if (weight.initializer() == nullptr || !is_viewed(weight.initializer())) return Match::no("the operand is no weight");
  if (!has_one_use(weight)) return Match::no("the weight is read otherwise as well");

  std::vector<Part> parts;
  for (std::size_t i = 0; i < node.output_count(); ++i) {
    const auto part = part_of(facts, &node.output(i));
    if (!part || part->end > part->size) return Match::no("the sizes are not known");
    parts.push_back(*part);
  }

  return Match([=, &node, &weight](Rewriter& rewriter) {
    const at::NoGradGuard no_grad;
    const at::Tensor whole = weight.initializer()->aten();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (node.output(i).is_unused()) continue;
      const at::Tensor view = whole.narrow(parts[i].axis, parts[i].start, parts[i].count());
      rewriter.replace(node.output(i), rewriter.view_of(weight, fmt::format("{}", i), ir::Tensor(view)));
    }
  });
}

/// The same elements in the same order under another shape.
Match match_reshaped(const Facts&, ir::Node& node) {
  Value& weight = node.input(0);
  if (weight.initializer() == nullptr || !is_viewed(weight.initializer())) return Match::no("the operand is no weight");
  if (!has_one_use(weight)) return Match::no("the weight is read otherwise as well");

  const auto& from = weight.initializer()->shape();
  if (!shape_of(node.output())) return Match::no("the shape is not known");
  std::vector<std::int64_t> to;
  for (const ir::Dim& dim : *shape_of(node.output())) {
    if (!dim.is_constant()) return Match::no("the shape is not known");
    to.push_back(*dim.constant());
  }

  if (!element_count(from) || element_count(from) != element_count(to)) return Match::no("the shape is not known");
  const at::Tensor& view = weight.initializer()->aten();
  if (node.op() != "Squeeze" && node.op() != "Unsqueeze" && !view.is_contiguous())
    return Match::no("its elements lie in another order");

  return Match([=, &node, &weight](Rewriter& rewriter) {
    const at::NoGradGuard no_grad;
    const at::Tensor shaped = weight.initializer()->aten().view(to);
    rewriter.replace(node.output(), rewriter.view_of(weight, "reshaped", ir::Tensor(shaped)));
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
  table.add({.name = "split_weight",
             .matches = "`Split` of a weight that is read in no other way, as stacked experts are",
             .makes = "a weight for each part, views until their bytes are written",
             .roots = {"Split"},
             .match = match_split,
             .stage = Stage::kFinish});
  table.add({.name = "reshaped_weight",
             .matches = "`Reshape`, `Squeeze` or `Unsqueeze` of a weight that is read in no other way",
             .makes = "the weight in that shape, a view until its bytes are written",
             .roots = {"Reshape", "Squeeze", "Unsqueeze"},
             .match = match_reshaped,
             .stage = Stage::kFinish});
}

}  // namespace exportguard::optimizer
