#include <cmath>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/kernels.h"

namespace exportguard::lowering {
namespace {

/// Zeros each element with that probability and scales the others; the second value is the mask of those kept.
/// The seed is left to the runtime, so the numbers are not those of torch, their distribution is.
std::vector<Value*> drop(LoweringContext& ctx, Value* x, double probability) {
  ctx.require(probability < 1, "ONNX Dropout takes a probability below 1");
  Value* ratio = ctx.constant(probability, DType::kFloat32);
  return ctx.op_many("Dropout", {x, ratio, ctx.constant(true, DType::kBool)}, 2);
}

/// In evaluation, and with a probability of 0, every kind of dropout is the input itself.
bool is_identity(LoweringContext& ctx) { return !ctx.flag(2) || ctx.number(1) == 0; }

Value* zeros_like(LoweringContext& ctx, Value* x) { return ctx.op("Mul", {x, ctx.number_like(0, x)}); }

/// One element for each channel: whole channels are dropped. It comes from `x`, as a runtime would compute a Dropout
/// of a constant once and for all.
Value* channels_of(LoweringContext& ctx, Value* x) {
  for (std::size_t axis = 2; axis < ctx.rank(x); ++axis) x = ctx.slice(x, static_cast<std::int64_t>(axis), 0, 1);
  return x;
}

void lower_dropout(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  if (is_identity(ctx)) return ctx.result(x);
  ctx.result(ctx.number(1) == 1 ? zeros_like(ctx, x) : drop(ctx, x, ctx.number(1)).front());
}

void lower_feature_dropout(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  if (is_identity(ctx)) return ctx.result(x);
  if (ctx.number(1) == 1) return ctx.result(zeros_like(ctx, x));
  Value* is_kept = drop(ctx, channels_of(ctx, x), ctx.number(1)).back();
  Value* scaled = ctx.op("Mul", {x, ctx.number_like(1 / (1 - ctx.number(1)), x)});
  ctx.result(ctx.where(is_kept, scaled, ctx.number_like(0, x)));
}

/// Dropped elements take the value that SELU has far below zero, and the whole is scaled so that mean and variance
/// stay. What is dropped is what Dropout would drop of `dropped_with`, which broadcasts to `x`.
Value* alpha_drop(LoweringContext& ctx, Value* x, Value* dropped_with, double probability) {
  constexpr double kAlpha = 1.7580993408473766;  // -lim selu(x)
  if (probability == 1) return zeros_like(ctx, x);
  const double scale = 1 / std::sqrt((kAlpha * kAlpha * probability + 1) * (1 - probability));
  Value* is_kept = drop(ctx, dropped_with, probability).back();
  Value* kept =
      ctx.op("Add", {ctx.op("Mul", {x, ctx.number_like(scale, x)}), ctx.number_like(kAlpha * scale * probability, x)});
  Value* dropped = ctx.op("Add", {zeros_like(ctx, x), ctx.number_like(kAlpha * scale * (probability - 1), x)});
  return ctx.where(is_kept, kept, dropped);
}

void lower_alpha_dropout(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  ctx.result(is_identity(ctx) ? x : alpha_drop(ctx, x, x, ctx.number(1)));
}

void lower_feature_alpha_dropout(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  ctx.result(is_identity(ctx) ? x : alpha_drop(ctx, x, channels_of(ctx, x), ctx.number(1)));
}

/// The result and the mask of kept elements; `train` None means training.
void lower_native_dropout(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const bool trains = !ctx.has(2) || ctx.flag(2);
  const double probability = ctx.number(1);
  const auto mask_of = [&](bool kept) { return ctx.filled(ctx.sizes_of(x), ctx.constant(kept, DType::kBool)); };
  if (!trains || probability == 0) return ctx.results({x, mask_of(true)});
  if (probability == 1) return ctx.results({zeros_like(ctx, x), mask_of(false)});
  ctx.results(drop(ctx, x, probability));
}

void lower_native_dropout_backward(LoweringContext& ctx) {
  Value* gradient = ctx.cast(ctx.input(0), ctx.output_dtype());
  Value* kept = ctx.op("Mul", {gradient, ctx.cast(ctx.input(1), gradient->dtype())});
  ctx.result(ctx.op("Mul", {kept, ctx.scalar(2, gradient->dtype())}));
}

}  // namespace

void populate_dropout(LoweringTable& table) {
  table.add("aten.dropout.default", lower_dropout);
  table.add("aten.feature_dropout.default", lower_feature_dropout);
  table.add("aten.alpha_dropout.default", lower_alpha_dropout);
  table.add("aten.feature_alpha_dropout.default", lower_feature_alpha_dropout);
  table.add("aten.native_dropout.default", lower_native_dropout);
  table.add("aten.native_dropout_backward.default", lower_native_dropout_backward);
}

}  // namespace exportguard::lowering
