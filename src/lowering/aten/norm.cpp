#include <algorithm>
#include <cmath>

#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/kernels.h"
#include "lowering/reductions.h"

namespace exportguard::lowering {
namespace {

/// (Σ |x|^p)^(1/p)
Value* general_norm(LoweringContext& ctx, Value* x, double p, const ReducedAxes& over) {
  Value* powers = ctx.op("Pow", {ctx.op("Abs", {x}), ctx.number_like(p, x)});
  Value* sum = ctx.reduce("ReduceSum", powers, over.axes, over.keepdim);
  return ctx.op("Pow", {sum, ctx.number_like(1 / p, sum)});
}

/// The magnitude of one number, of which a power may overflow; null for a norm of several.
Value* find_magnitude(LoweringContext& ctx, Value* x, const ReducedAxes& over) {
  const std::vector<std::int64_t> axes = over.axes.empty() ? counted(ctx.rank(x)) : over.axes;
  const auto is_one = [&](std::int64_t axis) { return ctx.size(x, axis).constant() == 1; };
  if (!std::ranges::all_of(axes, is_one)) return nullptr;
  Value* magnitude = ctx.op("Abs", {x});
  return over.keepdim ? magnitude : ctx.squeeze(magnitude, axes);
}

Value* vector_norm(LoweringContext& ctx, Value* x, double p, const ReducedAxes& over) {
  Value* magnitude = p == 0 ? nullptr : find_magnitude(ctx, x, over);
  if (magnitude != nullptr) return magnitude;
  if (std::isinf(p)) {
    return extreme_value(ctx, ctx.op("Abs", {x}), p > 0 ? Extreme::kLargest : Extreme::kSmallest, over);
  }
  if (p == 1) return ctx.reduce("ReduceL1", x, over.axes, over.keepdim);
  if (p == 2) return ctx.reduce("ReduceL2", x, over.axes, over.keepdim);
  if (p != 0) return general_norm(ctx, x, p, over);
  Value* is_set = ctx.cast(ctx.cast(x, DType::kBool), x->dtype());
  return ctx.reduce("ReduceSum", is_set, over.axes, over.keepdim);
}

/// The input in the dtype of the output, float16 in float32.
Value* operand(LoweringContext& ctx) { return ctx.widened(ctx.cast(ctx.input(0), ctx.output_dtype())); }

ReducedAxes reduced_axes(LoweringContext& ctx, std::size_t axes) {
  return {ctx.axes(axes, ctx.rank(ctx.input(0))), ctx.flag(axes + 1)};
}

double order(LoweringContext& ctx) { return ctx.number_or(1, 2); }

void lower_vector_norm(LoweringContext& ctx) {
  ctx.result(vector_norm(ctx, operand(ctx), order(ctx), reduced_axes(ctx, 2)));
}

void lower_norm(LoweringContext& ctx) { ctx.result(vector_norm(ctx, operand(ctx), order(ctx), {})); }

void lower_frobenius_norm(LoweringContext& ctx) { ctx.result(vector_norm(ctx, operand(ctx), 2, reduced_axes(ctx, 1))); }

void lower_dist(LoweringContext& ctx) {
  const DType dtype = ctx.output_dtype();
  Value* difference = ctx.op("Sub", {ctx.scalar(0, dtype), ctx.scalar(1, dtype)});
  ctx.result(vector_norm(ctx, ctx.widened(difference), ctx.number(2), {}));
}

/// log Σ exp(x - m) + m, m being the largest number, or 0 where that is infinite.
Value* written_out_logsumexp(LoweringContext& ctx, Value* x, const ReducedAxes& over) {
  Value* largest = kernel_reduce(ctx, "ReduceMax", x, over.axes, true);  // a NaN comes back in the sum
  Value* is_infinite = kernel_op(ctx, "IsInf", {largest});
  Value* shift = ctx.where(is_infinite, ctx.number_like(0, largest), largest);
  Value* sum = ctx.reduce("ReduceSum", ctx.op("Exp", {ctx.op("Sub", {x, shift})}), over.axes, true);
  Value* found = ctx.op("Add", {ctx.op("Log", {sum}), shift});
  return over.keepdim ? found : ctx.squeeze(found, over.axes);
}

void lower_logsumexp(LoweringContext& ctx) {
  const ReducedAxes over = reduced_axes(ctx, 1);
  Value* x = operand(ctx);
  const bool is_written_out = departs(ctx, Departure::kLogSumExpBehindInfinity) && ctx.rank(x) > 0;
  ctx.result(is_written_out ? written_out_logsumexp(ctx, x, over)
                            : kernel_reduce(ctx, "ReduceLogSumExp", x, over.axes, over.keepdim));
}

}  // namespace

void populate_norm(LoweringTable& table) {
  table.add({"aten.linalg_vector_norm.default", "aten.norm.ScalarOpt_dim", "aten.norm.ScalarOpt_dim_dtype"},
            lower_vector_norm);
  table.add({"aten.norm.Scalar", "aten.norm.ScalarOpt_dtype"}, lower_norm);
  table.add("aten.frobenius_norm.dim", lower_frobenius_norm);
  table.add("aten.dist.default", lower_dist);
  table.add({"aten.logsumexp.default", "aten.special_logsumexp.default"}, lower_logsumexp);
}

}  // namespace exportguard::lowering
