#include "exportguard/lowering/table.h"
#include "lowering/kernels.h"

namespace exportguard::lowering {
namespace {

/// Larger (`Max`) or smaller (`Min`) of two; NaN wins.
Value* larger_or_smaller(LoweringContext& ctx, std::string_view op, Value* a, Value* b) {
  const bool is_bool = a->dtype() == DType::kBool;
  if (is_bool) return ctx.op(op == "Max" ? "Or" : "And", {a, b});
  return kernel_op(ctx, op, {a, b});
}

void lower_pair(LoweringContext& ctx, std::string_view op) {
  const DType dtype = ctx.output_dtype();
  ctx.result(larger_or_smaller(ctx, op, ctx.scalar(0, dtype), ctx.scalar(1, dtype)));
}

void lower_maximum(LoweringContext& ctx) { lower_pair(ctx, "Max"); }
void lower_minimum(LoweringContext& ctx) { lower_pair(ctx, "Min"); }

/// As above, but a number wins over NaN.
void lower_pair_of_numbers(LoweringContext& ctx, std::string_view op) {
  const DType dtype = ctx.output_dtype();
  Value* a = ctx.scalar(0, dtype);
  Value* b = ctx.scalar(1, dtype);
  Value* chosen = larger_or_smaller(ctx, op, a, b);
  if (!is_floating(dtype)) return ctx.result(chosen);
  Value* without_b = ctx.where(kernel_op(ctx, "IsNaN", {b}), a, chosen);
  ctx.result(ctx.where(kernel_op(ctx, "IsNaN", {a}), b, without_b));
}

void lower_fmax(LoweringContext& ctx) { lower_pair_of_numbers(ctx, "Max"); }
void lower_fmin(LoweringContext& ctx) { lower_pair_of_numbers(ctx, "Min"); }

/// Both bounds at once. One alone is Max or Min: Clip takes a bound that is left out for the largest finite number.
void lower_clamp(LoweringContext& ctx) {
  if (!ctx.has(2)) return lower_maximum(ctx);
  const DType dtype = kernel_dtype(ctx, "Clip", ctx.output_dtype());
  Value* x = ctx.scalar(0, dtype);
  Value* high = ctx.scalar(2, dtype);
  ctx.result(ctx.has(1) ? ctx.op("Clip", {x, ctx.scalar(1, dtype), high}) : ctx.op("Min", {x, high}));
}

void lower_clamp_tensor(LoweringContext& ctx) {
  const DType dtype = ctx.output_dtype();
  Value* x = ctx.scalar(0, dtype);
  if (ctx.has(1)) x = kernel_op(ctx, "Max", {x, ctx.scalar(1, dtype)});
  if (ctx.has(2)) x = kernel_op(ctx, "Min", {x, ctx.scalar(2, dtype)});
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
