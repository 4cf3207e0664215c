#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "exportguard/lowering/table.h"
#include "lowering/double_functions.h"
#include "lowering/elementwise.h"
#include "lowering/wide_arithmetic.h"

/// The error function, the normal distribution and their inverses; computed in float64.
namespace exportguard::lowering {
namespace {

using namespace wide;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void lower_erf(LoweringContext& ctx) {
  ctx.result(float_function(ctx, "Erf", ctx.cast(ctx.input(0), ctx.output_dtype())));
}

/// log(erfc(x)) for x >= 0
Value* log_erfc_of_positive(LoweringContext& ctx, Value* x) {
  return ctx.op("Sub", {ctx.op("Log", {scaled_complementary_error(ctx, x)}), ctx.op("Mul", {x, x})});
}

Value* erfc(LoweringContext& ctx, Value* x) {
  Value* size = ctx.op("Abs", {x});
  Value* drop = ctx.op("Exp", {ctx.op("Neg", {ctx.op("Mul", {x, x})})});
  Value* tail = ctx.op("Mul", {scaled_complementary_error(ctx, size), drop});
  return ctx.where(is_below(ctx, x, 0), ctx.op("Sub", {number(ctx, 2), tail}), tail);
}

void lower_erfc(LoweringContext& ctx) { ctx.result(erfc(ctx, input(ctx))); }

void lower_erfcx(LoweringContext& ctx) {
  Value* x = input(ctx);
  Value* tail = scaled_complementary_error(ctx, ctx.op("Abs", {x}));
  Value* square = ctx.op("Exp", {ctx.op("Mul", {x, x})});
  ctx.result(ctx.where(is_below(ctx, x, 0), ctx.op("Sub", {times(ctx, square, 2), tail}), tail));
}

/// The normal distribution up to x: erfc(-x / √2) / 2.
void lower_ndtr(LoweringContext& ctx) {
  Value* scaled = times(ctx, input(ctx), -1 / std::numbers::sqrt2);
  ctx.result(times(ctx, erfc(ctx, scaled), 0.5));
}

void lower_log_ndtr(LoweringContext& ctx) {
  Value* scaled = times(ctx, input(ctx), -1 / std::numbers::sqrt2);
  Value* is_tail = ctx.op("Greater", {scaled, number(ctx, 0)});
  Value* safe = ctx.where(is_tail, scaled, number(ctx, 0));
  Value* tail = plus(ctx, log_erfc_of_positive(ctx, safe), -std::numbers::ln2);
  Value* rest = times(ctx, erfc(ctx, ctx.op("Neg", {scaled})), -0.5);
  ctx.result(ctx.where(is_tail, tail, log_one_plus(ctx, rest)));
}

// ------------------------------------------------------------------------------------------------ inverses

/// erfinv(x) / x by w = -log(1 - x²).
Value* inverse_ratio(LoweringContext& ctx, Value* w) {
  Value* root = ctx.op("Sqrt", {w});
  Value* far = ctx.where(is_below(ctx, root, kInverseErrorFarFit.high), fitted(ctx, root, kInverseErrorFarFit),
                         fitted(ctx, root, kInverseErrorTailFit));
  return ctx.where(is_below(ctx, w, kInverseErrorNearFit.high), fitted(ctx, w, kInverseErrorNearFit), far);
}

/// The inverse by x and 1 - x² of a number between -1 and 1; infinite at both ends.
Value* inverse_erf(LoweringContext& ctx, Value* x, Value* rest) {
  Value* w = ctx.op("Neg", {ctx.op("Log", {rest})});
  Value* found = product(ctx, x, inverse_ratio(ctx, w));
  return ctx.where(is_equal(ctx, rest, 0), times(ctx, x, kInfinity), found);
}

void lower_erfinv(LoweringContext& ctx) {
  Value* x = input(ctx);
  Value* rest = product(ctx, difference(ctx, number(ctx, 1), x), plus(ctx, x, 1));
  ctx.result(inverse_erf(ctx, x, rest));
}

/// √2 erfinv(2p - 1), where 1 - (2p - 1)² = 4p (1 - p) is exact for small p.
void lower_ndtri(LoweringContext& ctx) {
  Value* p = input(ctx);
  Value* rest = times(ctx, product(ctx, p, difference(ctx, number(ctx, 1), p)), 4);
  ctx.result(times(ctx, inverse_erf(ctx, plus(ctx, times(ctx, p, 2), -1), rest), std::numbers::sqrt2));
}

}  // namespace

void populate_error_functions(LoweringTable& table) {
  table.add({"aten.erf.default", "aten.special_erf.default"}, lower_erf);
  table.add({"aten.erfc.default", "aten.special_erfc.default"}, lower_erfc);
  table.add("aten.special_erfcx.default", lower_erfcx);
  table.add("aten.special_ndtr.default", lower_ndtr);
  table.add("aten.special_log_ndtr.default", lower_log_ndtr);
  table.add({"aten.erfinv.default", "aten.special_erfinv.default"}, lower_erfinv);
  table.add("aten.special_ndtri.default", lower_ndtri);
}

}  // namespace exportguard::lowering
