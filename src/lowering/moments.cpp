#include "lowering/moments.h"

#include <cmath>
#include <numeric>

#include "lowering/kernels.h"
#include "lowering/reductions.h"

namespace exportguard::lowering {

Value* mean_over(LoweringContext& ctx, Value* x, const std::vector<std::int64_t>& axes) {
  return axes.empty() ? x : ctx.reduce("ReduceMean", x, axes, true);
}

Moments moments(LoweringContext& ctx, Value* x, const std::vector<std::int64_t>& axes) {
  Value* mean = mean_over(ctx, x, axes);
  Value* centered = ctx.op("Sub", {x, mean});
  return {mean, mean_over(ctx, ctx.op("Mul", {centered, centered}), axes)};
}

Value* inverse_root(LoweringContext& ctx, Value* variance, double epsilon) {
  Value* sum = ctx.op("Add", {variance, ctx.number_like(epsilon, variance)});
  return ctx.op("Reciprocal", {ctx.op("Sqrt", {sum})});
}

Value* standardized(LoweringContext& ctx, Value* x, const Moments& statistics, double epsilon) {
  Value* centered = ctx.op("Sub", {x, statistics.mean});
  return ctx.op("Mul", {centered, inverse_root(ctx, statistics.variance, epsilon)});
}

std::vector<std::int64_t> axes_between(std::size_t first, std::size_t last) {
  std::vector<std::int64_t> axes(last > first ? last - first : 0);
  std::iota(axes.begin(), axes.end(), static_cast<std::int64_t>(first));
  return axes;
}

Value* per_channel(LoweringContext& ctx, Value* vector, std::size_t rank) {
  return ctx.unsqueeze(vector, axes_between(1, rank - 1));
}

Value* scaled_channels(LoweringContext& ctx, Value* x, Value* weight, Value* bias) {
  const std::size_t rank = ctx.rank(x);
  if (weight) x = ctx.op("Mul", {x, per_channel(ctx, ctx.cast(weight, x->dtype()), rank)});
  if (bias) x = ctx.op("Add", {x, per_channel(ctx, ctx.cast(bias, x->dtype()), rank)});
  return x;
}

Value* p_norm(LoweringContext& ctx, Value* x, double p, const std::vector<std::int64_t>& axes) {
  Value* size = ctx.op("Abs", {x});
  if (axes.empty() && p != 0) return size;
  if (p == 2) return ctx.reduce("ReduceL2", x, axes, true);
  if (p == 1) return ctx.reduce("ReduceSum", size, axes, true);
  if (std::isinf(p)) return extreme_value(ctx, size, p > 0 ? Extreme::kLargest : Extreme::kSmallest, {axes, true});
  if (p == 0) {
    Value* is_counted = ctx.cast(ctx.op("Greater", {size, ctx.number_like(0, size)}), x->dtype());
    return axes.empty() ? is_counted : ctx.reduce("ReduceSum", is_counted, axes, true);
  }
  Value* powers = ctx.op("Pow", {size, ctx.number_like(p, size)});
  return ctx.op("Pow", {ctx.reduce("ReduceSum", powers, axes, true), ctx.number_like(1 / p, size)});
}

}  // namespace exportguard::lowering
