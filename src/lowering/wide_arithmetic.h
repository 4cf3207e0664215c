#pragma once

#include <span>

#include "lowering/kernels.h"
#include "lowering/special_fits.h"

/// Arithmetic in float64, for functions that are computed from series.
namespace exportguard::lowering::wide {

constexpr DType kWide = DType::kFloat64;

inline Value* input(LoweringContext& ctx, std::size_t i = 0) { return ctx.scalar(i, kWide); }
inline Value* number(LoweringContext& ctx, double value) { return ctx.constant(value, kWide); }
inline Value* plus(LoweringContext& ctx, Value* x, double term) { return ctx.op("Add", {x, number(ctx, term)}); }
inline Value* times(LoweringContext& ctx, Value* x, double factor) { return ctx.op("Mul", {x, number(ctx, factor)}); }
inline Value* sum(LoweringContext& ctx, Value* a, Value* b) { return ctx.op("Add", {a, b}); }
inline Value* difference(LoweringContext& ctx, Value* a, Value* b) { return ctx.op("Sub", {a, b}); }
inline Value* product(LoweringContext& ctx, Value* a, Value* b) { return ctx.op("Mul", {a, b}); }
inline Value* quotient(LoweringContext& ctx, Value* a, Value* b) { return ctx.op("Div", {a, b}); }
inline Value* quotient(LoweringContext& ctx, double a, Value* b) { return ctx.op("Div", {number(ctx, a), b}); }
inline Value* is_below(LoweringContext& ctx, Value* x, double bound) { return ctx.op("Less", {x, number(ctx, bound)}); }
inline Value* is_equal(LoweringContext& ctx, Value* x, double other) {
  return ctx.op("Equal", {x, number(ctx, other)});
}

/// Zeros of the shape that both have together.
inline Value* zeros_of_both(LoweringContext& ctx, Value* a, Value* b) {
  return times(ctx, ctx.cast(ctx.op("Equal", {a, b}), kWide), 0);
}

/// Σ coefficients[i] xⁱ
Value* polynomial(LoweringContext& ctx, Value* x, std::span<const double> coefficients);

/// The polynomial of a fit; beyond its interval anything.
Value* fitted(LoweringContext& ctx, Value* x, const Fit& fit);

}  // namespace exportguard::lowering::wide
