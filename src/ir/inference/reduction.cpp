#include "exportguard/ir/inference.h"
#include "ir/inference/older_forms.h"

namespace exportguard::ir {
namespace {

/// From the last one to the first.
std::vector<std::size_t> reduced_axes(const InferenceContext& ctx, std::size_t rank) {
  auto axes = ctx.axes(either(ctx, 1, "axes").value_or(std::vector<std::int64_t>{}), rank);
  const bool reduces_all = axes.empty() && ctx.integer("noop_with_empty_axes", 0) == 0;
  for (std::size_t axis = 0; axis < rank && reduces_all; ++axis) axes.push_back(axis);
  return {axes.rbegin(), axes.rend()};
}

/// Axes are an operand since opset 18 (ReduceSum: 13), and were an attribute before.
void infer_reduction(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  if (!shape) return ctx.set(0, ctx.dtype(0), std::nullopt);
  const bool keeps = ctx.integer("keepdims", 1) != 0;
  if (ctx.has(1) && !ctx.integers(1)) {
    return ctx.set(0, ctx.dtype(0), keeps ? std::optional(ctx.fresh_shape(shape->size())) : std::nullopt);
  }
  for (const std::size_t axis : reduced_axes(ctx, shape->size())) {
    if (keeps) {
      (*shape)[axis] = 1;
    } else {
      shape->erase(shape->begin() + static_cast<std::ptrdiff_t>(axis));
    }
  }
  ctx.set(0, ctx.dtype(0), std::move(shape));
}

/// The product of a list of sizes.
void infer_product(InferenceContext& ctx) {
  infer_reduction(ctx);
  const auto elements = ctx.elements(0);
  const bool reduces = ctx.has(1) || ctx.integer("noop_with_empty_axes", 0) == 0;
  if (!elements || ctx.rank(0) != 1U || !reduces) return;
  const auto product = unless_overflow([&] {
    SymExpr total = 1;
    for (const SymExpr& element : *elements) total = total * element;
    return std::optional(total);
  });
  if (product && ctx.dtype(0) == DType::kInt64) ctx.set_elements({*product});
}

void infer_running(InferenceContext& ctx) { ctx.set(0, ctx.dtype(0), ctx.shape(0)); }

}  // namespace

void populate_reduction(InferenceTable& table) {
  table.add({"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
             "ReduceSum", "ReduceSumSquare"},
            infer_reduction);
  table.add({"ReduceProd"}, infer_product);
  table.add({"CumSum"}, infer_running);
}

}  // namespace exportguard::ir
