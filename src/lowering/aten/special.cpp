#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>

#include "exportguard/lowering/table.h"
#include "lowering/elementwise.h"
#include "lowering/kernels.h"

/// Special functions without an ONNX operator, from series that are good to 1e-9; computed in float64.
namespace exportguard::lowering {
namespace {

constexpr DType kWide = DType::kFloat64;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Value* wide_input(LoweringContext& ctx, std::size_t i = 0) { return ctx.scalar(i, kWide); }
Value* number(LoweringContext& ctx, double value) { return ctx.constant(value, kWide); }

Value* plus(LoweringContext& ctx, Value* x, double term) { return ctx.op("Add", {x, number(ctx, term)}); }
Value* times(LoweringContext& ctx, Value* x, double factor) { return ctx.op("Mul", {x, number(ctx, factor)}); }
Value* is_below(LoweringContext& ctx, Value* x, double bound) { return ctx.op("Less", {x, number(ctx, bound)}); }
Value* is_equal(LoweringContext& ctx, Value* x, double other) { return ctx.op("Equal", {x, number(ctx, other)}); }

/// Σ coefficients[i] xⁱ
Value* polynomial(LoweringContext& ctx, Value* x, std::span<const double> coefficients) {
  Value* sum = number(ctx, coefficients.back());
  for (std::size_t i = coefficients.size() - 1; i-- > 0;) {
    sum = plus(ctx, ctx.op("Mul", {sum, x}), coefficients[i]);
  }
  return sum;
}

// ------------------------------------------------------------------------------------------------ error functions

void lower_erf(LoweringContext& ctx) {
  ctx.result(kernel_op(ctx, "Erf", {ctx.cast(ctx.input(0), ctx.output_dtype())}));
}

/// log(erfc(x) exp(x²)) for x >= 0: log t + a polynomial in 2t - 1, where t = 1 / (1 + x / 2).
Value* log_erfcx(LoweringContext& ctx, Value* x) {
  static constexpr std::array kFit = {-0.6717940834877136,   0.6726432199680539,     0.04734332013198884,
                                      -0.04689548205983966,  -0.009872980375506725,  0.008823558144366863,
                                      0.0017613393369838766, -0.002339277709784312,  -0.0001561342644656836,
                                      0.0006579538424769199, -7.119731572458436e-05, -0.00015463378963933658,
                                      4.179589763430069e-05, 2.072307087112992e-05,  -8.12125541307514e-06};
  Value* t = ctx.op("Reciprocal", {plus(ctx, times(ctx, x, 0.5), 1)});
  Value* fit = polynomial(ctx, plus(ctx, times(ctx, t, 2), -1), kFit);
  return ctx.op("Add", {ctx.op("Log", {t}), fit});
}

Value* log_erfc_of_positive(LoweringContext& ctx, Value* x) {
  return ctx.op("Sub", {log_erfcx(ctx, x), ctx.op("Mul", {x, x})});
}

Value* erfc(LoweringContext& ctx, Value* x) {
  Value* tail = ctx.op("Exp", {log_erfc_of_positive(ctx, ctx.op("Abs", {x}))});
  Value* mirrored = ctx.op("Sub", {number(ctx, 2), tail});
  Value* finite = ctx.where(is_below(ctx, x, 0), mirrored, tail);
  Value* is_far = ctx.op("Greater", {x, number(ctx, 30)});  // where exp gives 0, and inf - inf would be NaN
  return ctx.where(is_far, number(ctx, 0), ctx.where(is_below(ctx, x, -30), number(ctx, 2), finite));
}

void lower_erfc(LoweringContext& ctx) { ctx.result(erfc(ctx, wide_input(ctx))); }

void lower_erfcx(LoweringContext& ctx) {
  Value* x = wide_input(ctx);
  Value* tail = ctx.op("Exp", {log_erfcx(ctx, ctx.op("Abs", {x}))});
  Value* square = ctx.op("Exp", {ctx.op("Mul", {x, x})});
  ctx.result(ctx.where(is_below(ctx, x, 0), ctx.op("Sub", {times(ctx, square, 2), tail}), tail));
}

/// The normal distribution up to x: erfc(-x / √2) / 2.
void lower_ndtr(LoweringContext& ctx) {
  Value* scaled = times(ctx, wide_input(ctx), -1 / std::numbers::sqrt2);
  ctx.result(times(ctx, erfc(ctx, scaled), 0.5));
}

void lower_log_ndtr(LoweringContext& ctx) {
  Value* scaled = times(ctx, wide_input(ctx), -1 / std::numbers::sqrt2);
  Value* is_tail = ctx.op("Greater", {scaled, number(ctx, 0)});
  Value* safe = ctx.where(is_tail, scaled, number(ctx, 0));
  Value* tail = plus(ctx, log_erfc_of_positive(ctx, safe), -std::numbers::ln2);
  Value* rest = times(ctx, erfc(ctx, ctx.op("Neg", {scaled})), -0.5);
  ctx.result(ctx.where(is_tail, tail, log_one_plus(ctx, rest)));
}

// ------------------------------------------------------------------------------------------------ gamma functions

constexpr int kShift = 8;  // the asymptotic series are taken at x + 8

/// Bernoulli numbers B2, B4, …
constexpr std::array kBernoulli = {1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6};

/// log Γ(x) for x > 0: Stirling's series at x + 8, less the logarithm of x (x + 1) … (x + 7).
Value* log_gamma_of_positive(LoweringContext& ctx, Value* x) {
  std::vector<double> series;
  for (std::size_t k = 1; k <= kBernoulli.size(); ++k) {
    series.push_back(kBernoulli[k - 1] / static_cast<double>(2 * k * (2 * k - 1)));
  }
  Value* y = plus(ctx, x, kShift);
  Value* inverse = ctx.op("Reciprocal", {y});
  Value* tail = ctx.op("Mul", {inverse, polynomial(ctx, ctx.op("Mul", {inverse, inverse}), series)});
  Value* logarithm = ctx.op("Log", {y});
  Value* main = ctx.op("Sub", {ctx.op("Mul", {plus(ctx, y, -0.5), logarithm}), y});
  Value* steps = x;
  for (int k = 1; k < kShift; ++k) steps = ctx.op("Mul", {steps, plus(ctx, x, k)});
  Value* stirling = plus(ctx, ctx.op("Add", {main, tail}), std::log(2 * std::numbers::pi) / 2);
  return ctx.op("Sub", {stirling, ctx.op("Log", {steps})});
}

/// π times the distance to the whole number below.
Value* phase(LoweringContext& ctx, Value* x) {
  return times(ctx, ctx.op("Sub", {x, ctx.op("Floor", {x})}), std::numbers::pi);
}

/// Γ(x) Γ(1 - x) = π / sin(πx) below 1/2.
Value* log_gamma(LoweringContext& ctx, Value* x) {
  Value* reflects = is_below(ctx, x, 0.5);
  Value* place = ctx.where(reflects, ctx.op("Sub", {number(ctx, 1), x}), x);
  Value* is_huge = ctx.op("Greater", {place, number(ctx, 1e30)});  // the product of the steps overflows
  Value* safe = ctx.where(is_huge, number(ctx, 1), place);
  Value* series = log_gamma_of_positive(ctx, safe);
  Value* crude = ctx.op("Mul", {place, plus(ctx, ctx.op("Log", {place}), -1)});
  Value* gamma = ctx.where(is_equal(ctx, place, kInfinity), place, ctx.where(is_huge, crude, series));
  Value* sine = ctx.op("Log", {ctx.op("Abs", {ctx.op("Sin", {phase(ctx, x)})})});
  Value* mirrored = ctx.op("Sub", {plus(ctx, ctx.op("Neg", {sine}), std::log(std::numbers::pi)), gamma});
  Value* found = ctx.where(reflects, mirrored, gamma);
  return ctx.where(is_equal(ctx, x, -kInfinity), number(ctx, kInfinity), found);
}

void lower_lgamma(LoweringContext& ctx) { ctx.result(log_gamma(ctx, wide_input(ctx))); }

/// Σ log Γ(x - j/2) for j < p, and a constant.
void lower_mvlgamma(LoweringContext& ctx) {
  const std::int64_t p = ctx.integer(1);
  Value* x = wide_input(ctx);
  Value* sum = number(ctx, static_cast<double>(p * (p - 1)) / 4 * std::log(std::numbers::pi));
  for (std::int64_t j = 0; j < p; ++j) {
    sum = ctx.op("Add", {sum, log_gamma(ctx, plus(ctx, x, -0.5 * static_cast<double>(j)))});
  }
  ctx.result(sum);
}

/// The derivative of log Γ for x > 0, in the same way.
Value* digamma_of_positive(LoweringContext& ctx, Value* x) {
  std::vector<double> series;
  for (std::size_t k = 1; k <= kBernoulli.size(); ++k) series.push_back(kBernoulli[k - 1] / static_cast<double>(2 * k));
  Value* y = plus(ctx, x, kShift);
  Value* inverse = ctx.op("Reciprocal", {y});
  Value* square = ctx.op("Mul", {inverse, inverse});
  Value* tail = ctx.op("Mul", {square, polynomial(ctx, square, series)});
  Value* sum = ctx.op("Sub", {ctx.op("Sub", {ctx.op("Log", {y}), times(ctx, inverse, 0.5)}), tail});
  for (int k = 0; k < kShift; ++k) sum = ctx.op("Sub", {sum, ctx.op("Reciprocal", {plus(ctx, x, k)})});
  return sum;
}

/// ψ(1 - x) - π / tan(πx) below 1/2; at ±0 it is ∓inf, at the whole numbers below NaN.
Value* digamma(LoweringContext& ctx, Value* x) {
  Value* reflects = is_below(ctx, x, 0.5);
  Value* positive = digamma_of_positive(ctx, ctx.where(reflects, ctx.op("Sub", {number(ctx, 1), x}), x));
  Value* angle = phase(ctx, x);
  Value* cotangent = ctx.op("Div", {ctx.op("Cos", {angle}), ctx.op("Sin", {angle})});
  Value* mirrored = ctx.op("Sub", {positive, times(ctx, cotangent, std::numbers::pi)});
  Value* found = ctx.where(reflects, mirrored, positive);
  Value* is_pole = ctx.op("And", {is_below(ctx, x, 0), ctx.op("Equal", {x, ctx.op("Floor", {x})})});
  Value* nan = number(ctx, std::numeric_limits<double>::quiet_NaN());
  Value* at_zero = ctx.op("Neg", {ctx.op("Reciprocal", {x})});
  return ctx.where(is_equal(ctx, x, 0), at_zero, ctx.where(is_pole, nan, found));
}

void lower_digamma(LoweringContext& ctx) { ctx.result(digamma(ctx, wide_input(ctx))); }

/// Hurwitz's Σ (q + k)^-s for q > 0, by Euler and Maclaurin from the term `kTerms` on.
Value* zeta_of_positive(LoweringContext& ctx, Value* s, Value* q) {
  constexpr int kTerms = 12;
  Value* minus_s = ctx.op("Neg", {s});
  const auto power = [&](Value* base) { return ctx.op("Pow", {base, minus_s}); };
  Value* y = plus(ctx, q, kTerms);
  Value* last = power(y);
  Value* integral = ctx.op("Div", {ctx.op("Mul", {last, y}), plus(ctx, s, -1)});
  Value* sum = ctx.op("Add", {integral, times(ctx, last, 0.5)});
  for (int k = 0; k < kTerms; ++k) sum = ctx.op("Add", {sum, power(plus(ctx, q, k))});
  Value* factor = ctx.op("Mul", {ctx.op("Div", {last, y}), s});  // s (s + 1) … y^-(s + 2j - 1) / (2j)!
  factor = times(ctx, factor, 0.5);
  for (std::size_t j = 1; j <= kBernoulli.size(); ++j) {
    sum = ctx.op("Add", {sum, times(ctx, factor, kBernoulli[j - 1])});
    const auto i = static_cast<double>(2 * j);
    Value* next = ctx.op("Mul", {plus(ctx, s, i - 1), plus(ctx, s, i)});
    factor = ctx.op("Mul", {factor, ctx.op("Div", {times(ctx, next, 1 / ((i + 1) * (i + 2))), ctx.op("Mul", {y, y})})});
  }
  return sum;
}

/// inf at the poles; NaN for other q below zero, where torch sums for whole s alone.
Value* zeta(LoweringContext& ctx, Value* s, Value* q) {
  Value* nan = number(ctx, std::numeric_limits<double>::quiet_NaN());
  Value* is_positive = ctx.op("Greater", {q, number(ctx, 0)});
  Value* is_whole = ctx.op("Equal", {q, ctx.op("Floor", {q})});
  Value* sum = zeta_of_positive(ctx, s, ctx.where(is_positive, q, number(ctx, 1)));
  Value* outside = ctx.where(is_whole, number(ctx, kInfinity), nan);
  Value* found = ctx.where(is_positive, sum, ctx.where(ctx.op("IsNaN", {q}), q, outside));
  return ctx.where(is_equal(ctx, s, 1), number(ctx, kInfinity), ctx.where(is_below(ctx, s, 1), nan, found));
}

void lower_zeta(LoweringContext& ctx) { ctx.result(zeta(ctx, wide_input(ctx, 0), wide_input(ctx, 1))); }

}  // namespace

void populate_special(LoweringTable& table) {
  table.add({"aten.erf.default", "aten.special_erf.default"}, lower_erf);
  table.add({"aten.erfc.default", "aten.special_erfc.default"}, lower_erfc);
  table.add("aten.special_erfcx.default", lower_erfcx);
  table.add("aten.special_ndtr.default", lower_ndtr);
  table.add("aten.special_log_ndtr.default", lower_log_ndtr);
  table.add({"aten.lgamma.default", "aten.special_gammaln.default"}, lower_lgamma);
  table.add({"aten.mvlgamma.default", "aten.special_multigammaln.default"}, lower_mvlgamma);
  table.add({"aten.digamma.default", "aten.special_digamma.default", "aten.special_psi.default"}, lower_digamma);
  table.add({"aten.special_zeta.default", "aten.special_zeta.self_scalar", "aten.special_zeta.other_scalar"},
            lower_zeta);
}

}  // namespace exportguard::lowering
