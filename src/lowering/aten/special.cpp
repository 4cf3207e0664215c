#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "exportguard/lowering/table.h"
#include "lowering/elementwise.h"
#include "lowering/iteration.h"
#include "lowering/reductions.h"
#include "lowering/wide_arithmetic.h"

/// Gamma functions and their relatives, from series that are good to 1e-9; computed in float64.
namespace exportguard::lowering {
namespace {

using namespace wide;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

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

/// π times the distance to the nearest whole number, which is exact for small x of either sign.
Value* phase(LoweringContext& ctx, Value* x) {
  return times(ctx, ctx.op("Sub", {x, ctx.op("Round", {x})}), std::numbers::pi);
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
  Value* is_pole = ctx.op("And", {is_below(ctx, x, 0.5), ctx.op("Equal", {x, ctx.op("Floor", {x})})});
  return ctx.where(is_pole, number(ctx, kInfinity), found);
}

void lower_lgamma(LoweringContext& ctx) { ctx.result(log_gamma(ctx, input(ctx))); }

/// Σ log Γ(x - j/2) for j < p, and a constant.
void lower_mvlgamma(LoweringContext& ctx) {
  const std::int64_t p = ctx.integer(1);
  Value* x = input(ctx);
  Value* sum = number(ctx, static_cast<double>(p * (p - 1)) / 4 * std::log(std::numbers::pi));
  for (std::int64_t j = 0; j < p; ++j) {
    Value* place = plus(ctx, x, -0.5 * static_cast<double>(j));  // rounded as in torch: halves end at a pole
    sum = ctx.op("Add", {sum, log_gamma(ctx, ctx.cast(ctx.cast(place, ctx.output_dtype()), kWide))});
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

void lower_digamma(LoweringContext& ctx) { ctx.result(digamma(ctx, input(ctx))); }

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

/// The coefficients of the n-th derivative of cot, a polynomial in cot: each step multiplies by -(1 + cot²).
std::vector<double> cotangent_derivative(std::int64_t n) {
  std::vector<double> powers = {0, 1};
  for (std::int64_t step = 0; step < n; ++step) {
    std::vector<double> next(powers.size() + 1, 0);
    for (std::size_t i = 1; i < powers.size(); ++i) {
      next[i - 1] -= static_cast<double>(i) * powers[i];
      next[i + 1] -= static_cast<double>(i) * powers[i];
    }
    powers = std::move(next);
  }
  return powers;
}

/// π in parts of 33 bits, whose products with whole numbers are exact.
constexpr std::array kPi = {3.1415926534682512, 1.2154201012607932e-10, 4.044532497591901e-21};

/// ±sin(angle) for an angle near n π: exact beside the multiples of π, where runtimes give 0.
Value* sine_near(LoweringContext& ctx, Value* angle, Value* n) {
  for (const double part : kPi) angle = difference(ctx, angle, times(ctx, n, part));
  return ctx.op("Sin", {angle});
}

/// The derivative of digamma; π² / sin²(πx) - ψ'(1 - x) below 1/2. As in torch the angle is rounded to the dtype of the
/// result, so that the poles below zero are large numbers.
Value* trigamma(LoweringContext& ctx, Value* x) {
  Value* reflects = is_below(ctx, x, 0.5);
  Value* place = ctx.where(reflects, difference(ctx, number(ctx, 1), x), x);
  Value* series = zeta_of_positive(ctx, number(ctx, 2), place);
  series = ctx.where(is_equal(ctx, place, kInfinity), number(ctx, 0), series);
  const DType narrow = ctx.output_dtype() == kWide ? kWide : DType::kFloat32;
  Value* angle = ctx.op("Mul", {ctx.cast(x, narrow), ctx.constant(std::numbers::pi, narrow)});
  Value* sine = sine_near(ctx, ctx.cast(angle, kWide), ctx.op("Round", {x}));
  Value* cosecant = quotient(ctx, std::numbers::pi, sine);
  return ctx.where(reflects, difference(ctx, product(ctx, cosecant, cosecant), series), series);
}

/// The n-th derivative of digamma, n > 1: (-1)ⁿ⁺¹ n! ζ(n + 1, x), and below zero by reflection at 1/2.
Value* polygamma(LoweringContext& ctx, std::int64_t n, Value* x) {
  const double sign = n % 2 == 0 ? 1 : -1;
  const auto order = static_cast<double>(n);
  Value* reflects = is_below(ctx, x, 0);
  Value* place = ctx.where(reflects, difference(ctx, number(ctx, 1), x), x);
  Value* is_pole = is_equal(ctx, place, 0);
  Value* series = zeta_of_positive(ctx, number(ctx, order + 1), ctx.where(is_pole, number(ctx, 1), place));
  series = times(ctx, series, -sign * std::tgamma(order + 1));
  Value* angle = phase(ctx, x);
  Value* cotangent = quotient(ctx, ctx.op("Cos", {angle}), ctx.op("Sin", {angle}));
  Value* derivative = polynomial(ctx, cotangent, cotangent_derivative(n));
  derivative = times(ctx, derivative, std::pow(std::numbers::pi, order + 1));
  Value* mirrored = difference(ctx, times(ctx, series, sign), derivative);
  Value* is_whole = ctx.op("And", {reflects, ctx.op("Equal", {x, ctx.op("Floor", {x})})});
  Value* pole = number(ctx, -sign * kInfinity);
  Value* found = ctx.where(reflects, mirrored, series);
  return ctx.where(ctx.op("Or", {is_pole, is_whole}), pole, found);
}

void lower_polygamma(LoweringContext& ctx) {
  const std::int64_t n = ctx.integer(0);
  ctx.require(n >= 0, "the order of polygamma must not be negative");
  Value* x = input(ctx, 1);
  if (n == 0) return ctx.result(digamma(ctx, x));
  ctx.result(n == 1 ? trigamma(ctx, x) : polygamma(ctx, n, x));
}

/// The terms of ζ(s, q) up to the first q that is not below zero.
struct TermsBelowZero {
  Value* sum;
  Value* q;  ///< what is left to begin at
};

TermsBelowZero terms_below_zero(LoweringContext& ctx, Value* s, Value* q) {
  Value* minus_s = ctx.op("Neg", {s});
  Value* steps =
      ctx.concat({ctx.reshape(ctx.op("Ceil", {ctx.op("Neg", {q})}), {Size(-1)}), ctx.filled({1}, number(ctx, 0))}, 0);
  Value* count = ctx.cast(ctx.reduce("ReduceMax", steps, {0}, false), DType::kInt64);
  const WriteStep add_term = [&](Value*, const std::vector<Value*>& state) {
    Value* is_counted = is_below(ctx, state[1], 0);
    Value* term = ctx.where(is_counted, ctx.op("Pow", {state[1], minus_s}), number(ctx, 0));
    return Step{{sum(ctx, state[0], term), sum(ctx, state[1], ctx.cast(is_counted, kWide))}};
  };
  const auto found = repeated(ctx, count, {times(ctx, q, 0), q}, add_term);
  return {found[0], found[1]};
}

constexpr double kProductOverflows = 2.5e13;  ///< of s (s + 1) … (s + 22), which torch multiplies by what may be 0

/// inf at the poles; for other q below zero torch sums for whole s alone. An infinite s leaves what q⁻ˢ is.
Value* zeta(LoweringContext& ctx, Value* given_s, Value* given_q) {
  Value* zeros = zeros_of_both(ctx, given_s, given_q);
  Value* s = sum(ctx, given_s, zeros);
  Value* q = sum(ctx, given_q, zeros);
  const auto is_whole = [&](Value* x) { return ctx.op("Equal", {x, ctx.op("Floor", {x})}); };
  Value* nan = number(ctx, std::numeric_limits<double>::quiet_NaN());
  Value* is_positive = ctx.op("Greater", {q, number(ctx, 0)});
  Value* is_outside = ctx.op("Or", {is_whole(q), ctx.op("Not", {is_whole(s)})});
  Value* is_summed = ctx.op("Or", {is_positive, ctx.op("Not", {is_outside})});
  const TermsBelowZero below = terms_below_zero(ctx, s, ctx.where(is_summed, q, number(ctx, 1)));

  Value* is_infinite = is_equal(ctx, s, kInfinity);
  Value* series = zeta_of_positive(ctx, ctx.where(is_infinite, number(ctx, 2), s), below.q);
  Value* first = ctx.op("Pow", {below.q, ctx.op("Neg", {s})});
  Value* found = sum(ctx, below.sum, ctx.where(is_infinite, first, series));
  Value* is_lost = ctx.op("And", {ctx.op("Greater", {s, number(ctx, kProductOverflows)}), is_equal(ctx, found, 0)});
  found = ctx.where(is_lost, nan, found);
  Value* outside = ctx.where(is_whole(q), number(ctx, kInfinity), nan);
  found = ctx.where(is_summed, found, ctx.where(ctx.op("IsNaN", {q}), q, outside));
  return ctx.where(is_equal(ctx, s, 1), number(ctx, kInfinity), ctx.where(is_below(ctx, s, 1), nan, found));
}

// ------------------------------------------------------------------------------------------------ incomplete gamma

constexpr std::int64_t kMostTerms = 5000;

Value* any_of(LoweringContext& ctx, Value* flags) { return any_true(ctx, flags, {}); }

/// Σ xᵏ / (a (a + 1) … (a + k)); for x below a + 1.
Value* gamma_series(LoweringContext& ctx, Value* a, Value* x) {
  Value* first = quotient(ctx, 1, a);
  const WriteStep add_term = [&](Value* iteration, const std::vector<Value*>& state) {
    Value* k = plus(ctx, ctx.cast(iteration, kWide), 1);
    Value* term = product(ctx, state[0], quotient(ctx, x, sum(ctx, a, k)));
    Value* total = sum(ctx, state[1], term);
    return Step{{term, total}, any_of(ctx, ctx.op("Greater", {term, times(ctx, total, 1e-17)}))};
  };
  return repeated(ctx, ctx.constant(kMostTerms, DType::kInt64), {first, first}, add_term)[1];
}

/// The continued fraction 1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - …)), evaluated forwards; for x above a + 1.
Value* gamma_fraction(LoweringContext& ctx, Value* a, Value* x) {
  Value* b = plus(ctx, difference(ctx, x, a), 1);
  Value* d = quotient(ctx, 1, b);
  Value* c = ctx.op("Add", {ctx.op("Mul", {b, number(ctx, 0)}), number(ctx, 1e300)});
  const WriteStep add_term = [&](Value* iteration, const std::vector<Value*>& state) {
    Value* k = plus(ctx, ctx.cast(iteration, kWide), 1);
    Value* numerator = product(ctx, k, difference(ctx, a, k));
    Value* denominator = sum(ctx, b, times(ctx, k, 2));
    Value* next_d = quotient(ctx, 1, sum(ctx, denominator, product(ctx, numerator, state[0])));
    Value* next_c = sum(ctx, denominator, quotient(ctx, numerator, state[1]));
    Value* factor = product(ctx, next_c, next_d);
    Value* change = ctx.op("Abs", {plus(ctx, factor, -1)});
    Value* continues = any_of(ctx, ctx.op("Greater", {change, number(ctx, 1e-15)}));
    return Step{{next_d, next_c, product(ctx, state[2], factor)}, continues};
  };
  return repeated(ctx, ctx.constant(kMostTerms, DType::kInt64), {d, c, d}, add_term)[2];
}

struct GammaParts {
  Value* below;  ///< P(a, x)
  Value* above;  ///< Q(a, x) = 1 - P(a, x)
};

GammaParts incomplete_gamma(LoweringContext& ctx, Value* given_a, Value* given_x) {
  Value* zeros = zeros_of_both(ctx, given_a, given_x);
  Value* a = sum(ctx, given_a, zeros);
  Value* x = sum(ctx, given_x, zeros);

  const auto holds = [&](std::string_view op, Value* left, double right) {
    return ctx.op(op, {left, number(ctx, right)});
  };
  Value* is_finite = holds("Less", a, kInfinity);
  Value* is_ordinary = ctx.op("And", {ctx.op("And", {holds("Greater", a, 0), holds("Greater", x, 0)}), is_finite});
  Value* is_small = ctx.op("Less", {x, plus(ctx, a, 1)});

  Value* one = number(ctx, 1);
  const auto restricted = [&](Value* value, Value* condition) {
    return ctx.where(ctx.op("And", {is_ordinary, condition}), value, one);
  };
  Value* is_large = ctx.op("Not", {is_small});
  Value* safe_a = ctx.where(is_ordinary, a, one);
  Value* safe_x = ctx.where(is_ordinary, x, one);
  Value* exponent = difference(ctx, product(ctx, safe_a, ctx.op("Log", {safe_x})), safe_x);
  Value* factor = ctx.op("Exp", {difference(ctx, exponent, log_gamma(ctx, safe_a))});

  Value* below = product(ctx, factor, gamma_series(ctx, restricted(a, is_small), restricted(x, is_small)));
  Value* large_x = ctx.where(ctx.op("And", {is_ordinary, is_large}), x, number(ctx, 3));
  Value* above = product(ctx, factor, gamma_fraction(ctx, restricted(a, is_large), large_x));
  above = ctx.where(holds("Equal", x, kInfinity), number(ctx, 0), above);

  // torch asks in this order, and for NaN last: what one operand decides, a NaN in the other one does not change.
  const auto at_ends = [&](Value* value, double at_zero_x) {
    Value* nan = number(ctx, std::numeric_limits<double>::quiet_NaN());
    Value* at_zero = number(ctx, at_zero_x);
    Value* opposite = number(ctx, 1 - at_zero_x);
    Value* is_endless = holds("Equal", x, kInfinity);
    Value* infinite_a = ctx.where(is_endless, nan, at_zero);
    Value* other_a = ctx.where(holds("Equal", a, kInfinity), infinite_a, ctx.where(is_endless, opposite, nan));
    Value* zero_a = ctx.where(holds("Greater", x, 0), opposite, nan);
    Value* end = ctx.where(holds("Equal", a, 0), zero_a, ctx.where(holds("Equal", x, 0), at_zero, other_a));
    Value* is_negative = ctx.op("Or", {holds("Less", a, 0), holds("Less", x, 0)});
    return ctx.where(is_ordinary, value, ctx.where(is_negative, nan, end));
  };
  return {at_ends(ctx.where(is_small, below, difference(ctx, one, above)), 0),
          at_ends(ctx.where(is_small, difference(ctx, one, below), above), 1)};
}

void lower_gammainc(LoweringContext& ctx) { ctx.result(incomplete_gamma(ctx, input(ctx, 0), input(ctx, 1)).below); }
void lower_gammaincc(LoweringContext& ctx) { ctx.result(incomplete_gamma(ctx, input(ctx, 0), input(ctx, 1)).above); }

void lower_zeta(LoweringContext& ctx) { ctx.result(zeta(ctx, input(ctx, 0), input(ctx, 1))); }

}  // namespace

void populate_special(LoweringTable& table) {
  table.add({"aten.lgamma.default", "aten.special_gammaln.default"}, lower_lgamma);
  table.add({"aten.mvlgamma.default", "aten.special_multigammaln.default"}, lower_mvlgamma);
  table.add({"aten.digamma.default", "aten.special_digamma.default", "aten.special_psi.default"}, lower_digamma);
  table.add({"aten.polygamma.default", "aten.special_polygamma.default"}, lower_polygamma);
  table.add({"aten.igamma.default", "aten.special_gammainc.default"}, lower_gammainc);
  table.add({"aten.igammac.default", "aten.special_gammaincc.default"}, lower_gammaincc);
  table.add({"aten.special_zeta.default", "aten.special_zeta.self_scalar", "aten.special_zeta.other_scalar"},
            lower_zeta);
}

}  // namespace exportguard::lowering
