#include <cmath>
#include <limits>
#include <numbers>

#include "exportguard/lowering/table.h"
#include "lowering/wide_arithmetic.h"

/// Bessel's functions and Airy's, from polynomial fits; computed in float64.
namespace exportguard::lowering {
namespace {

using namespace wide;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Value* square(LoweringContext& ctx, Value* x) { return product(ctx, x, x); }
Value* root(LoweringContext& ctx, Value* x) { return ctx.op("Sqrt", {x}); }
Value* exponential(LoweringContext& ctx, Value* x) { return ctx.op("Exp", {x}); }

/// `near` up to the bound, `far` from there on.
Value* joined(LoweringContext& ctx, Value* x, double bound, Value* near, Value* far) {
  return ctx.where(ctx.op("LessOrEqual", {x, number(ctx, bound)}), near, far);
}

// ------------------------------------------------------------------------------------------------ modified

/// exp(-|x|) I0(x)
Value* scaled_i0(LoweringContext& ctx, Value* x) {
  Value* size = ctx.op("Abs", {x});
  Value* far = quotient(ctx, fitted(ctx, quotient(ctx, 8, size), kI0FarFit), root(ctx, size));
  return joined(ctx, size, 8, fitted(ctx, size, kI0NearFit), far);
}

/// exp(-|x|) I1(x)
Value* scaled_i1(LoweringContext& ctx, Value* x) {
  Value* size = ctx.op("Abs", {x});
  Value* far = quotient(ctx, fitted(ctx, quotient(ctx, 8, size), kI1FarFit), root(ctx, size));
  Value* near = product(ctx, size, fitted(ctx, size, kI1NearFit));
  return product(ctx, ctx.op("Sign", {x}), joined(ctx, size, 8, near, far));
}

Value* unscaled(LoweringContext& ctx, Value* x, Value* scaled) {
  return product(ctx, exponential(ctx, ctx.op("Abs", {x})), scaled);
}

Value* i0(LoweringContext& ctx, Value* x) { return unscaled(ctx, x, scaled_i0(ctx, x)); }
Value* i1(LoweringContext& ctx, Value* x) { return unscaled(ctx, x, scaled_i1(ctx, x)); }

void lower_i0(LoweringContext& ctx) { ctx.result(i0(ctx, input(ctx))); }
void lower_i0e(LoweringContext& ctx) { ctx.result(scaled_i0(ctx, input(ctx))); }
void lower_i1(LoweringContext& ctx) { ctx.result(i1(ctx, input(ctx))); }
void lower_i1e(LoweringContext& ctx) { ctx.result(scaled_i1(ctx, input(ctx))); }

Value* log_of_half(LoweringContext& ctx, Value* x) { return ctx.op("Log", {times(ctx, x, 0.5)}); }

/// A function of the second kind near 0 and times exp(x) far from it: inf at 0, NaN below.
struct SecondKind {
  Value* near;
  Value* scaled_far;
};

SecondKind k0(LoweringContext& ctx, Value* x) {
  Value* near = difference(ctx, fitted(ctx, square(ctx, x), kK0NearFit), product(ctx, log_of_half(ctx, x), i0(ctx, x)));
  return {near, quotient(ctx, fitted(ctx, quotient(ctx, 2, x), kK0FarFit), root(ctx, x))};
}

SecondKind k1(LoweringContext& ctx, Value* x) {
  Value* series = quotient(ctx, fitted(ctx, square(ctx, x), kK1NearFit), x);
  Value* near = sum(ctx, series, product(ctx, log_of_half(ctx, x), i1(ctx, x)));
  near = ctx.where(is_equal(ctx, x, 0), number(ctx, kInfinity), near);
  return {near, quotient(ctx, fitted(ctx, quotient(ctx, 2, x), kK1FarFit), root(ctx, x))};
}

using MakeSecondKind = SecondKind (*)(LoweringContext&, Value*);

void lower_second_kind(LoweringContext& ctx, MakeSecondKind make) {
  Value* x = input(ctx);
  const SecondKind found = make(ctx, x);
  Value* far = product(ctx, exponential(ctx, ctx.op("Neg", {x})), found.scaled_far);
  ctx.result(joined(ctx, x, 2, found.near, far));
}

void lower_scaled_second_kind(LoweringContext& ctx, MakeSecondKind make) {
  Value* x = input(ctx);
  const SecondKind found = make(ctx, x);
  ctx.result(joined(ctx, x, 2, product(ctx, exponential(ctx, x), found.near), found.scaled_far));
}

void lower_k0(LoweringContext& ctx) { lower_second_kind(ctx, k0); }
void lower_k1(LoweringContext& ctx) { lower_second_kind(ctx, k1); }
void lower_scaled_k0(LoweringContext& ctx) { lower_scaled_second_kind(ctx, k0); }
void lower_scaled_k1(LoweringContext& ctx) { lower_scaled_second_kind(ctx, k1); }

// ------------------------------------------------------------------------------------------------ J and Y

/// cos and sin of a phase and what they are multiplied with: J = cos c - sin s, Y = sin c + cos s.
struct Waves {
  Value* cosine;
  Value* sine;
  Value* of_cosine;
  Value* of_sine;
};

Waves waves(LoweringContext& ctx, Value* size, int order) {
  Value* inverse = quotient(ctx, 8, size);
  Value* z = square(ctx, inverse);
  Value* angle = plus(ctx, size, -(order / 2.0 + 0.25) * std::numbers::pi);
  Value* amplitude = root(ctx, quotient(ctx, 2 / std::numbers::pi, size));
  Value* c = fitted(ctx, z, order == 0 ? kBessel0CosineFit : kBessel1CosineFit);
  Value* s = product(ctx, inverse, fitted(ctx, z, order == 0 ? kBessel0SineFit : kBessel1SineFit));
  return {ctx.op("Cos", {angle}), ctx.op("Sin", {angle}), product(ctx, amplitude, c), product(ctx, amplitude, s)};
}

Value* first_kind(LoweringContext& ctx, const Waves& w) {
  return difference(ctx, product(ctx, w.cosine, w.of_cosine), product(ctx, w.sine, w.of_sine));
}

Value* second_kind(LoweringContext& ctx, const Waves& w) {
  return sum(ctx, product(ctx, w.sine, w.of_cosine), product(ctx, w.cosine, w.of_sine));
}

void lower_j0(LoweringContext& ctx) {
  Value* size = ctx.op("Abs", {input(ctx)});
  ctx.result(joined(ctx, size, 8, fitted(ctx, square(ctx, size), kJ0NearFit), first_kind(ctx, waves(ctx, size, 0))));
}

void lower_j1(LoweringContext& ctx) {
  Value* x = input(ctx);
  Value* size = ctx.op("Abs", {x});
  Value* near = product(ctx, size, fitted(ctx, square(ctx, size), kJ1NearFit));
  Value* found = joined(ctx, size, 8, near, first_kind(ctx, waves(ctx, size, 1)));
  // -0.0 is itself; some runtimes choose 0.0 for a -0.0 that is first, as it is once they left out a Not.
  Value* is_other = ctx.op("Greater", {size, number(ctx, 0)});
  ctx.result(ctx.where(is_other, product(ctx, ctx.op("Sign", {x}), found), x));
}

/// -inf at 0, NaN below.
Value* with_pole(LoweringContext& ctx, Value* x, Value* found) {
  return ctx.where(is_equal(ctx, x, 0), number(ctx, -kInfinity), found);
}

void lower_y0(LoweringContext& ctx) {
  Value* x = input(ctx);
  Value* squared = square(ctx, x);
  Value* singular = product(ctx, ctx.op("Log", {x}), fitted(ctx, squared, kJ0NearFit));
  Value* near = sum(ctx, fitted(ctx, squared, kY0NearFit), times(ctx, singular, 2 / std::numbers::pi));
  ctx.result(with_pole(ctx, x, joined(ctx, x, 8, near, second_kind(ctx, waves(ctx, x, 0)))));
}

void lower_y1(LoweringContext& ctx) {
  Value* x = input(ctx);
  Value* squared = square(ctx, x);
  Value* singular = product(ctx, ctx.op("Log", {x}), product(ctx, x, fitted(ctx, squared, kJ1NearFit)));
  singular = times(ctx, difference(ctx, singular, quotient(ctx, 1, x)), 2 / std::numbers::pi);
  Value* near = sum(ctx, product(ctx, x, fitted(ctx, squared, kY1NearFit)), singular);
  ctx.result(with_pole(ctx, x, joined(ctx, x, 8, near, second_kind(ctx, waves(ctx, x, 1)))));
}

/// sin(x) / x, 0 at infinity.
void lower_spherical_j0(LoweringContext& ctx) {
  Value* x = input(ctx);
  Value* found = ctx.where(is_equal(ctx, x, 0), number(ctx, 1), quotient(ctx, ctx.op("Sin", {x}), x));
  ctx.result(ctx.where(is_equal(ctx, ctx.op("Abs", {x}), kInfinity), number(ctx, 0), found));
}

// ------------------------------------------------------------------------------------------------ Airy

/// 2/3 |x|^(3/2)
Value* airy_argument(LoweringContext& ctx, Value* size) {
  return times(ctx, product(ctx, size, root(ctx, size)), 2.0 / 3);
}

double airy_argument(double size) { return 2.0 / 3 * size * std::sqrt(size); }

/// Ai(-x) for x > 4: (sin(ζ + π/4) s - cos(ζ + π/4) c) / (√π x^¼)
Value* airy_waves(LoweringContext& ctx, Value* size) {
  Value* zeta = airy_argument(ctx, size);
  Value* inverse = quotient(ctx, airy_argument(-kAiryNearFit.low), zeta);
  Value* z = square(ctx, inverse);
  Value* angle = plus(ctx, zeta, std::numbers::pi / 4);
  Value* cosines = product(ctx, inverse, fitted(ctx, z, kAiryCosineFit));
  Value* total = difference(ctx, product(ctx, ctx.op("Sin", {angle}), fitted(ctx, z, kAirySineFit)),
                            product(ctx, ctx.op("Cos", {angle}), cosines));
  return times(ctx, quotient(ctx, total, root(ctx, root(ctx, size))), 1 / std::sqrt(std::numbers::pi));
}

void lower_airy(LoweringContext& ctx) {
  Value* x = input(ctx);
  Value* size = ctx.op("Abs", {x});
  Value* zeta = airy_argument(ctx, size);
  Value* fit = fitted(ctx, quotient(ctx, airy_argument(kAiryNearFit.high), zeta), kAiryRightFit);
  Value* right = quotient(ctx, product(ctx, exponential(ctx, ctx.op("Neg", {zeta})), fit), root(ctx, root(ctx, size)));
  right = times(ctx, right, 1 / (2 * std::sqrt(std::numbers::pi)));
  Value* middle = joined(ctx, x, kAiryNearFit.high, fitted(ctx, x, kAiryNearFit), right);
  Value* found = ctx.where(is_below(ctx, x, kAiryNearFit.low), airy_waves(ctx, size), middle);
  // torch has NaN at both infinities.
  Value* infinity = number(ctx, std::numeric_limits<double>::infinity());
  Value* nan = number(ctx, std::numeric_limits<double>::quiet_NaN());
  ctx.result(ctx.where(ctx.op("Equal", {size, infinity}), nan, found));
}

}  // namespace

void populate_bessel(LoweringTable& table) {
  table.add({"aten.i0.default", "aten.special_i0.default", "aten.special_modified_bessel_i0.default"}, lower_i0);
  table.add("aten.special_i0e.default", lower_i0e);
  table.add({"aten.special_i1.default", "aten.special_modified_bessel_i1.default"}, lower_i1);
  table.add("aten.special_i1e.default", lower_i1e);
  table.add("aten.special_modified_bessel_k0.default", lower_k0);
  table.add("aten.special_modified_bessel_k1.default", lower_k1);
  table.add("aten.special_scaled_modified_bessel_k0.default", lower_scaled_k0);
  table.add("aten.special_scaled_modified_bessel_k1.default", lower_scaled_k1);
  table.add("aten.special_bessel_j0.default", lower_j0);
  table.add("aten.special_bessel_j1.default", lower_j1);
  table.add("aten.special_bessel_y0.default", lower_y0);
  table.add("aten.special_bessel_y1.default", lower_y1);
  table.add("aten.special_spherical_bessel_j0.default", lower_spherical_j0);
  table.add("aten.special_airy_ai.default", lower_airy);
}

}  // namespace exportguard::lowering
