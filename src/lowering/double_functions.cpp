#include "lowering/double_functions.h"

#include <map>
#include <numbers>

#include "lowering/elementwise.h"
#include "lowering/wide_arithmetic.h"

namespace exportguard::lowering {
namespace {

using namespace wide;

Value* absolute(LoweringContext& ctx, Value* x) { return ctx.op("Abs", {x}); }

/// `magnitude` with the sign of `x`, that of -0.0 and NaN among them.
Value* signed_as(LoweringContext& ctx, Value* x, Value* magnitude) {
  Value* has_size = ctx.op("Greater", {absolute(ctx, x), number(ctx, 0)});
  return ctx.where(has_size, product(ctx, ctx.op("Sign", {x}), magnitude), x);
}

Value* root_of_one_plus_square(LoweringContext& ctx, Value* x) {
  return ctx.op("Sqrt", {plus(ctx, product(ctx, x, x), 1)});
}

// ------------------------------------------------------------------------------------------------ the arc tangent

/// tan(α / 2) of tan(α) between -1 and 1.
Value* of_half_the_angle(LoweringContext& ctx, Value* tangent) {
  return quotient(ctx, tangent, plus(ctx, root_of_one_plus_square(ctx, tangent), 1));
}

/// The series of atan for |x| < 0.1, where the ninth term is the last one that counts.
Value* arc_tangent_of_small(LoweringContext& ctx, Value* x) {
  static constexpr double kSeries[] = {1.0,       -1.0 / 3, 1.0 / 5,   -1.0 / 7, 1.0 / 9,
                                       -1.0 / 11, 1.0 / 13, -1.0 / 15, 1.0 / 17};
  return product(ctx, x, polynomial(ctx, product(ctx, x, x), kSeries));
}

/// The angle is halved three times; that of a large tangent is the complement of its reciprocal's.
Value* arc_tangent(LoweringContext& ctx, Value* x) {
  Value* size = absolute(ctx, x);
  Value* is_large = ctx.op("Greater", {size, number(ctx, 1)});
  Value* tangent = ctx.where(is_large, ctx.op("Reciprocal", {size}), size);
  for (int i = 0; i < 3; ++i) tangent = of_half_the_angle(ctx, tangent);
  Value* angle = times(ctx, arc_tangent_of_small(ctx, tangent), 8);
  Value* complement = difference(ctx, number(ctx, std::numbers::pi / 2), angle);
  return signed_as(ctx, x, ctx.where(is_large, complement, angle));
}

/// NaN outside [-1, 1] by the roots, and ±π/2 at the ends by a division by zero.
Value* arc_sine(LoweringContext& ctx, Value* x) {
  Value* below = difference(ctx, number(ctx, 1), x);
  return arc_tangent(ctx, quotient(ctx, x, ctx.op("Sqrt", {product(ctx, below, plus(ctx, x, 1))})));
}

Value* arc_cosine(LoweringContext& ctx, Value* x) {
  Value* ratio = quotient(ctx, difference(ctx, number(ctx, 1), x), plus(ctx, x, 1));
  return times(ctx, arc_tangent(ctx, ctx.op("Sqrt", {ratio})), 2);
}

Value* tangent(LoweringContext& ctx, Value* x) {
  Value* sine = ctx.op("Sin", {x});
  return quotient(ctx, sine, ctx.op("Cos", {x}));
}

// ------------------------------------------------------------------------------------------------ hyperbolic functions

/// exp(|x|) / 2 as a product of two, which overflows no earlier than the result.
Value* half_of_exponential(LoweringContext& ctx, Value* size) {
  Value* root = ctx.op("Exp", {times(ctx, size, 0.5)});
  return product(ctx, times(ctx, root, 0.5), root);
}

Value* hyperbolic_sine(LoweringContext& ctx, Value* x) {
  Value* size = absolute(ctx, x);
  Value* less_one = exp_minus_one(ctx, size);
  Value* near = times(ctx, sum(ctx, less_one, quotient(ctx, less_one, plus(ctx, less_one, 1))), 0.5);
  return signed_as(ctx, x, ctx.where(is_below(ctx, size, 20), near, half_of_exponential(ctx, size)));
}

Value* hyperbolic_cosine(LoweringContext& ctx, Value* x) {
  Value* half = half_of_exponential(ctx, absolute(ctx, x));
  return sum(ctx, half, quotient(ctx, 0.25, half));
}

constexpr double kFar = 1e8;  // from here on the 1 in x² ± 1 is lost

Value* far_logarithm(LoweringContext& ctx, Value* x) { return plus(ctx, ctx.op("Log", {x}), std::numbers::ln2); }

/// log(x + sqrt(x² + 1)), from what it is more than 1.
Value* inverse_hyperbolic_sine(LoweringContext& ctx, Value* x) {
  Value* size = absolute(ctx, x);
  Value* is_near = is_below(ctx, size, kFar);
  Value* safe = ctx.where(is_near, size, number(ctx, 1));
  Value* excess = quotient(ctx, product(ctx, safe, safe), plus(ctx, root_of_one_plus_square(ctx, safe), 1));
  return signed_as(ctx, x, ctx.where(is_near, log_one_plus(ctx, sum(ctx, safe, excess)), far_logarithm(ctx, size)));
}

/// log(x + sqrt(x² - 1)), from what x is more than 1.
Value* inverse_hyperbolic_cosine(LoweringContext& ctx, Value* x) {
  Value* is_outside = is_below(ctx, x, 1);
  Value* is_far = ctx.op("Greater", {x, number(ctx, kFar)});
  Value* excess = plus(ctx, ctx.where(is_far, number(ctx, 1), x), -1);
  Value* root = ctx.op("Sqrt", {product(ctx, excess, plus(ctx, excess, 2))});
  Value* near = log_one_plus(ctx, sum(ctx, excess, root));
  Value* inside = ctx.where(is_far, far_logarithm(ctx, x), near);
  return ctx.where(is_outside, number(ctx, std::numeric_limits<double>::quiet_NaN()), inside);
}

/// log((1 + x) / (1 - x)) / 2
Value* inverse_hyperbolic_tangent(LoweringContext& ctx, Value* x) {
  Value* size = absolute(ctx, x);
  Value* ratio = quotient(ctx, times(ctx, size, 2), difference(ctx, number(ctx, 1), size));
  Value* is_outside = ctx.op("Greater", {size, number(ctx, 1)});
  Value* inside = times(ctx, log_one_plus(ctx, ratio), 0.5);
  return signed_as(ctx, x, ctx.where(is_outside, number(ctx, std::numeric_limits<double>::quiet_NaN()), inside));
}

// ------------------------------------------------------------------------------------------------ the error function

constexpr double kFarError = 2;  // where the fits meet

Value* error_of_small(LoweringContext& ctx, Value* size) {
  return product(ctx, size, fitted(ctx, product(ctx, size, size), kErrorNearFit));
}

Value* scaled_complement_of_large(LoweringContext& ctx, Value* x) {
  Value* inverse = quotient(ctx, kFarError, x);
  return product(ctx, inverse, fitted(ctx, inverse, kErrorFarFit));
}

Value* error_function(LoweringContext& ctx, Value* x) {
  Value* size = absolute(ctx, x);
  Value* is_small = is_below(ctx, size, kFarError);
  Value* large = ctx.where(is_small, number(ctx, kFarError), size);
  Value* drop = ctx.op("Exp", {ctx.op("Neg", {product(ctx, large, large)})});
  Value* tail = product(ctx, scaled_complement_of_large(ctx, large), drop);
  Value* far = difference(ctx, number(ctx, 1), tail);
  return signed_as(ctx, x, ctx.where(is_small, error_of_small(ctx, size), far));
}

using Function = Value* (*)(LoweringContext&, Value*);

Function find_function(std::string_view op) {
  static const std::map<std::string_view, Function> functions = {
      {"Acos", arc_cosine},        {"Acosh", inverse_hyperbolic_cosine},
      {"Asin", arc_sine},          {"Asinh", inverse_hyperbolic_sine},
      {"Atan", arc_tangent},       {"Atanh", inverse_hyperbolic_tangent},
      {"Cosh", hyperbolic_cosine}, {"Erf", error_function},
      {"Sinh", hyperbolic_sine},   {"Tan", tangent},
  };
  const auto found = functions.find(op);
  return found == functions.end() ? nullptr : found->second;
}

}  // namespace

Value* scaled_complementary_error(LoweringContext& ctx, Value* x) {
  Value* is_small = is_below(ctx, x, kFarError);
  Value* small = ctx.where(is_small, x, number(ctx, 0));
  Value* complement = difference(ctx, number(ctx, 1), error_of_small(ctx, small));
  Value* near = product(ctx, complement, ctx.op("Exp", {product(ctx, small, small)}));
  return ctx.where(is_small, near, scaled_complement_of_large(ctx, x));
}

Value* float_function(LoweringContext& ctx, std::string_view op, Value* x) {
  const Function function =
      x->dtype() == DType::kFloat64 && !has_kernel(ctx.target(), op, x->dtype()) ? find_function(op) : nullptr;
  return function != nullptr ? function(ctx, x) : kernel_op(ctx, op, {x});
}

}  // namespace exportguard::lowering
