#include "exportguard/ir/inference.h"

namespace exportguard::ir {
namespace {

std::optional<SymExpr> number(const InferenceContext& ctx, std::size_t i) {
  const auto elements = ctx.elements(i);
  return elements && elements->size() == 1 ? std::optional(elements->front()) : std::nullopt;
}

/// The axis is an operand since opset 20; its default became -2.
std::optional<std::int64_t> transformed_axis(const InferenceContext& ctx) {
  if (ctx.opset() < 20) return ctx.integer("axis", 1);
  if (!ctx.has(2)) return -2;
  const auto axis = ctx.integers(2);
  return axis && axis->size() == 1 ? std::optional(axis->front()) : std::nullopt;
}

/// Real numbers have a last axis of size 1, complex ones of size 2.
void infer_fourier(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  if (!shape || shape->empty()) return ctx.set(0, ctx.dtype(0), std::nullopt);
  const auto given = transformed_axis(ctx);
  const bool is_inverse = ctx.integer("inverse", 0) != 0;
  const bool is_onesided = ctx.integer("onesided", 0) != 0;
  if (!given || (is_inverse && is_onesided)) return ctx.set(0, ctx.dtype(0), ctx.fresh_shape(shape->size()));
  Dim& size = (*shape)[ctx.axis(*given, shape->size())];
  if (ctx.has(1)) size = number(ctx, 1).value_or(ctx.fresh());
  if (is_onesided) size = floor_div(size, 2) + 1;
  shape->back() = 2;
  ctx.set(0, ctx.dtype(0), std::move(shape));
}

/// [batch, length, 1 or 2] → [batch, frames, frequencies, 2].
void infer_short_time_fourier(InferenceContext& ctx) {
  const auto signal = ctx.shape(0);
  const auto window = ctx.shape(2);
  std::optional<SymExpr> length = number(ctx, 3);
  if (!ctx.has(3) && window && window->size() == 1) length = window->front();
  const auto step = number(ctx, 1);
  const Dim batch = signal && !signal->empty() ? signal->front() : ctx.fresh();
  const bool is_known = signal && signal->size() > 1 && step && step->constant().value_or(1) > 0 && length;
  const Dim frames = is_known ? floor_div((*signal)[1] - *length, *step) + 1 : ctx.fresh();
  Dim frequencies = length.value_or(ctx.fresh());
  if (ctx.integer("onesided", 1) != 0) frequencies = floor_div(frequencies, 2) + 1;
  ctx.set(0, ctx.dtype(0), Shape{batch, frames, frequencies, 2});
}

}  // namespace

void populate_spectra(InferenceTable& table) {
  table.add({"DFT"}, infer_fourier);
  table.add({"STFT"}, infer_short_time_fourier);
}

}  // namespace exportguard::ir
