#include <cmath>

#include "exportguard/lowering/table.h"
#include "lowering/integer_arithmetic.h"
#include "lowering/kernels.h"

namespace exportguard::lowering {
namespace {

using Choice = Value* (*)(LoweringContext&, Value*, Value*);

void lower_pair(LoweringContext& ctx, Choice choice) {
  const DType dtype = ctx.output_dtype();
  ctx.result(choice(ctx, ctx.scalar(0, dtype), ctx.scalar(1, dtype)));
}

void lower_maximum(LoweringContext& ctx) { lower_pair(ctx, larger_of); }
void lower_minimum(LoweringContext& ctx) { lower_pair(ctx, smaller_of); }

/// As above, but a number wins over NaN.
void lower_pair_of_numbers(LoweringContext& ctx, Choice choice) {
  const DType dtype = ctx.output_dtype();
  Value* a = ctx.scalar(0, dtype);
  Value* b = ctx.scalar(1, dtype);
  Value* chosen = choice(ctx, a, b);
  if (!is_floating(dtype)) return ctx.result(chosen);
  Value* without_b = ctx.where(kernel_op(ctx, "IsNaN", {b}), a, chosen);
  ctx.result(ctx.where(kernel_op(ctx, "IsNaN", {a}), b, without_b));
}

void lower_fmax(LoweringContext& ctx) { lower_pair_of_numbers(ctx, larger_of); }
void lower_fmin(LoweringContext& ctx) { lower_pair_of_numbers(ctx, smaller_of); }

bool is_nan(LoweringContext& ctx, std::size_t bound) { return std::isnan(ctx.find_number(bound).value_or(0)); }

/// Both bounds at once. One alone is Max or Min: Clip takes a bound that is left out for the largest finite number, and
/// leaves out one that is NaN.
void lower_clamp(LoweringContext& ctx) {
  if (!ctx.has(2)) return lower_maximum(ctx);
  const DType dtype = ctx.output_dtype();
  Value* x = ctx.scalar(0, dtype);
  Value* high = ctx.scalar(2, dtype);
  if (!ctx.has(1)) return ctx.result(smaller_of(ctx, x, high));
  Value* low = ctx.scalar(1, dtype);
  const bool has_kernel = kernel_dtype(ctx, "Clip", dtype) != DType::kInt64 && !is_nan(ctx, 1) && !is_nan(ctx, 2);
  ctx.result(has_kernel ? kernel_op(ctx, "Clip", {x, low, high}) : smaller_of(ctx, larger_of(ctx, x, low), high));
}

void lower_clamp_tensor(LoweringContext& ctx) {
  const DType dtype = ctx.output_dtype();
  Value* x = ctx.scalar(0, dtype);
  if (ctx.has(1)) x = larger_of(ctx, x, ctx.scalar(1, dtype));
  if (ctx.has(2)) x = smaller_of(ctx, x, ctx.scalar(2, x->dtype()));
  ctx.result(x);
}

}  // namespace

void populate_limits(LoweringTable& table) {
  table.add({"aten.maximum.default", "aten.max.other", "aten.clamp_min.default", "aten.clamp_min.Tensor"},
            lower_maximum);
  table.add({"aten.minimum.default", "aten.min.other", "aten.clamp_max.default", "aten.clamp_max.Tensor"},
            lower_minimum);
  table.add("aten.fmax.default", lower_fmax);
  table.add("aten.fmin.default", lower_fmin);
  table.add({"aten.clamp.default", "aten.clip.default"}, lower_clamp);
  table.add({"aten.clamp.Tensor", "aten.clip.Tensor"}, lower_clamp_tensor);
}

}  // namespace exportguard::lowering
