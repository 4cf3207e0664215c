#include <cmath>
#include <limits>

#include "exportguard/lowering/table.h"
#include "lowering/complex_arithmetic.h"
#include "lowering/complex_rules.h"
#include "lowering/elementwise.h"
#include "lowering/integer_arithmetic.h"
#include "lowering/kernels.h"

namespace exportguard::lowering {
namespace {

/// The first two arguments, tensors or numbers, in the dtype that torch computes in; null where its kernels want
/// another.
struct Operands {
  Value* a;
  Value* b;
};

Operands operands(LoweringContext& ctx, DType dtype) { return {ctx.scalar(0, dtype), ctx.scalar(1, dtype)}; }

Operands operands_for(LoweringContext& ctx, std::string_view op) {
  return operands(ctx, kernel_dtype(ctx, op, ctx.output_dtype()));
}

/// What torch computes of halves in float32: quotients and remainders, which lose whole numbers above 2048, and several
/// steps of one operator, which are rounded once.
DType wide_dtype(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
}

void lower_binary(LoweringContext& ctx, std::string_view op) {
  const auto [a, b] = operands_for(ctx, op);
  ctx.result(kernel_op(ctx, op, {a, b}));
}

/// A value times the `alpha` or `value` argument at `i`.
Value* times_argument(LoweringContext& ctx, Value* value, std::size_t i) {
  if (ctx.find_number(i) == 1.0) return value;
  return ctx.op("Mul", {value, ctx.scalar(i, value->dtype())});
}

void lower_add(LoweringContext& ctx) {
  if (ctx.output_dtype() == DType::kBool) {
    const auto [a, b] = operands(ctx, DType::kBool);
    const bool is_disabled = ctx.find_number(2) == 0.0;
    return ctx.result(is_disabled ? a : ctx.op("Or", {a, b}));
  }
  const auto [a, b] = operands(ctx, ctx.output_dtype());
  ctx.result(kernel_op(ctx, "Add", {a, times_argument(ctx, b, 2)}));
}

void lower_sub(LoweringContext& ctx) {
  const auto [a, b] = operands(ctx, ctx.output_dtype());
  ctx.result(kernel_op(ctx, "Sub", {a, times_argument(ctx, b, 2)}));
}

void lower_rsub(LoweringContext& ctx) {
  const auto [a, b] = operands(ctx, ctx.output_dtype());
  ctx.result(kernel_op(ctx, "Sub", {b, times_argument(ctx, a, 2)}));
}

bool is_normal_half(double number) {
  const double magnitude = std::abs(number);
  constexpr double kLeastNormal = 6.103515625e-05;
  constexpr double kLargest = 65504;
  return number == 0 || !std::isfinite(number) || (kLeastNormal <= magnitude && magnitude <= kLargest);
}

/// Whether the second operand may be a number that no half is: 1e-9, 1e9, a count of elements.
bool is_beyond_halves(LoweringContext& ctx) {
  if (const auto number = ctx.find_number(1)) return !is_normal_half(*number);
  const ir::Type& type = ctx.input(1)->type();
  return type.dtype != DType::kFloat16 && (type.is_scalar || type.rank() == 0);
}

/// torch scales halves by what stands for one number in float32, so that 0 * 1e9 is 0 and not NaN.
void lower_scaling(LoweringContext& ctx, std::string_view op) {
  if (ctx.output_dtype() != DType::kFloat16 || !is_beyond_halves(ctx)) return lower_binary(ctx, op);
  const auto [a, b] = operands(ctx, DType::kFloat32);
  ctx.result(ctx.op(op, {a, b}));
}

void lower_mul(LoweringContext& ctx) {
  if (ctx.output_dtype() == DType::kBool) return lower_binary(ctx, "And");
  lower_scaling(ctx, "Mul");
}

void lower_div(LoweringContext& ctx) { lower_scaling(ctx, "Div"); }

void lower_floor_divide(LoweringContext& ctx) {
  const auto [a, b] = operands(ctx, wide_dtype(ctx.output_dtype()));
  ctx.result(floor_quotient(ctx, a, b));
}

bool is_one_number(LoweringContext& ctx, std::size_t argument) {
  if (!ctx.is_value(argument)) return true;
  const ir::Type& type = ctx.input(argument)->type();
  return type.is_scalar || type.rank() == 0;
}

/// Quotients of two halves are rounded before they are cut, those by one number are not.
void lower_truncated_divide(LoweringContext& ctx) {
  const auto [a, b] = operands(ctx, wide_dtype(ctx.output_dtype()));
  if (!is_floating(a->dtype())) return ctx.result(whole_quotient(ctx, a, b));
  Value* quotient = ctx.op("Div", {a, b});
  if (!is_one_number(ctx, 1)) quotient = ctx.widened(ctx.cast(quotient, ctx.output_dtype()));
  ctx.result(rounded_to_zero(ctx, quotient));
}

void lower_div_mode(LoweringContext& ctx) {
  if (!ctx.has(2)) return lower_div(ctx);
  const std::string_view mode = ctx.text(2);
  if (mode == "floor") return lower_floor_divide(ctx);
  ctx.require(mode == "trunc", "rounding_mode must be None, 'floor' or 'trunc'");
  lower_truncated_divide(ctx);
}

/// Halves as they are, a number among them, before the remainder is computed in float32.
Operands halves_in_float32(LoweringContext& ctx) {
  const auto [a, b] = operands(ctx, ctx.output_dtype());
  return {ctx.widened(a), ctx.widened(b)};
}

void lower_remainder(LoweringContext& ctx) {
  const auto [a, b] = halves_in_float32(ctx);
  ctx.result(floor_remainder(ctx, a, b));
}

void lower_fmod(LoweringContext& ctx) {
  const auto [a, b] = halves_in_float32(ctx);
  ctx.result(truncated_remainder(ctx, a, b));
}

/// The powers that torch computes without `pow`; null for others.
Value* find_special_power(LoweringContext& ctx, Value* x, double exponent) {
  if (exponent == 1) return x;
  if (exponent == 2) return ctx.op("Mul", {x, x});
  if (exponent == 3) return ctx.op("Mul", {ctx.op("Mul", {x, x}), x});
  const bool has_roots = is_floating(x->dtype()) && x->dtype() != DType::kFloat16;
  if (!has_roots) return nullptr;
  if (exponent == 0.5) return ctx.op("Sqrt", {x});
  if (exponent == -0.5) return ctx.op("Reciprocal", {ctx.op("Sqrt", {x})});
  if (exponent == -1) return ctx.op("Reciprocal", {x});
  if (exponent == -2) return ctx.op("Reciprocal", {ctx.op("Mul", {x, x})});
  return nullptr;
}

void lower_pow(LoweringContext& ctx) {
  const auto exponent = ctx.find_number(1);
  if (exponent && ctx.output_dtype() != DType::kBool) {
    if (Value* power = find_special_power(ctx, ctx.scalar(0, ctx.output_dtype()), *exponent)) return ctx.result(power);
  }
  const bool is_integer = !is_floating(ctx.output_dtype()) && ctx.output_dtype() != DType::kBool;
  if (!is_integer) return lower_binary(ctx, "Pow");
  ctx.result(integer_power(ctx, ctx.scalar(0, DType::kInt64), ctx.scalar(1, DType::kInt64)));
}

void lower_square(LoweringContext& ctx) {
  Value* x = ctx.cast(ctx.input(0), ctx.output_dtype());
  ctx.result(ctx.op("Mul", {x, x}));
}

void lower_neg(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  if (!is_unsigned(x->dtype())) return ctx.result(kernel_op(ctx, "Neg", {x}));
  ctx.result(ctx.op("Sub", {ctx.number_like(0, x), x}));
}

void lower_abs(LoweringContext& ctx) {
  const bool is_bool = ctx.input(0)->dtype() == DType::kBool;
  ctx.result(is_bool ? ctx.input(0) : kernel_op(ctx, "Abs", {ctx.input(0)}));
}

void lower_sign(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  if (x->dtype() == DType::kBool) return ctx.result(x);
  Value* sign = kernel_op(ctx, "Sign", {x});
  if (!is_floating(x->dtype())) return ctx.result(sign);
  ctx.result(ctx.where(kernel_op(ctx, "IsNaN", {x}), ctx.number_like(0, x), sign));  // torch: the sign of NaN is 0
}

void lower_reciprocal(LoweringContext& ctx) {
  ctx.result(kernel_op(ctx, "Reciprocal", {ctx.cast(ctx.input(0), ctx.output_dtype())}));
}

void lower_positive(LoweringContext& ctx) { ctx.result(ctx.input(0)); }

void lower_copysign(LoweringContext& ctx) {
  const DType dtype = ctx.output_dtype();
  Value* magnitude = kernel_op(ctx, "Abs", {ctx.scalar(0, dtype)});
  Value* is_below = sign_bit(ctx, ctx.is_value(1) ? ctx.input(1) : ctx.scalar(1, dtype));
  ctx.result(with_sign(ctx, is_below, magnitude));
}

void lower_hypot(LoweringContext& ctx) {
  // scaled by the larger leg, so that the squares do not overflow
  const auto [a, b] = operands(ctx, wide_dtype(ctx.output_dtype()));
  Value* left = ctx.op("Abs", {a});
  Value* right = ctx.op("Abs", {b});
  Value* large = ctx.op("Max", {left, right});
  Value* small = ctx.op("Min", {left, right});
  Value* ratio = ctx.op("Div", {small, large});
  Value* one = ctx.number_like(1, ratio);
  Value* length = ctx.op("Mul", {large, ctx.op("Sqrt", {ctx.op("Add", {ctx.op("Mul", {ratio, ratio}), one})})});
  Value* is_point = ctx.op("Equal", {large, ctx.number_like(0, large)});
  Value* infinity = ctx.constant(std::numeric_limits<double>::infinity(), large->dtype());
  Value* is_infinite = ctx.op("Or", {ctx.op("Equal", {left, infinity}), ctx.op("Equal", {right, infinity})});
  ctx.result(ctx.where(is_infinite, infinity, ctx.where(is_point, large, length)));
}

void lower_addcmul(LoweringContext& ctx) {
  const DType dtype = wide_dtype(ctx.output_dtype());
  Value* product = ctx.op("Mul", {ctx.scalar(1, dtype), ctx.scalar(2, dtype)});
  ctx.result(ctx.op("Add", {ctx.scalar(0, dtype), times_argument(ctx, product, 3)}));
}

void lower_addcdiv(LoweringContext& ctx) {
  const DType dtype = wide_dtype(ctx.output_dtype());
  Value* quotient = ctx.op("Div", {times_argument(ctx, ctx.scalar(1, dtype), 3), ctx.scalar(2, dtype)});
  ctx.result(ctx.op("Add", {ctx.scalar(0, dtype), quotient}));
}

void lower_lerp(LoweringContext& ctx) {
  const DType dtype = wide_dtype(ctx.output_dtype());
  const auto [start, end] = operands(ctx, dtype);
  Value* weight = ctx.scalar(2, dtype);
  Value* span = ctx.op("Sub", {end, start});
  Value* rest = ctx.op("Sub", {ctx.number_like(1, weight), weight});
  // from the nearer end, so that a weight of 1 gives `end` itself
  Value* from_start = ctx.op("Add", {start, ctx.op("Mul", {weight, span})});
  Value* from_end = ctx.op("Sub", {end, ctx.op("Mul", {span, rest})});
  if (const auto number = ctx.find_number(2)) return ctx.result(std::abs(*number) < 0.5 ? from_start : from_end);
  Value* is_near_start = kernel_op(ctx, "Less", {ctx.op("Abs", {weight}), ctx.number_like(0.5, weight)});
  ctx.result(ctx.where(is_near_start, from_start, from_end));
}

void separate_reciprocal(ComplexSite& site) { site.give(inverted(site, site.parts(0))); }

void separate_quotient(ComplexSite& site) {
  if (!site.is_complex(1)) return separate_each(site);
  const Parts inverse = inverted(site, site.parts(1));
  site.give(multiplied(site, "mul.Tensor", site.number(0), {inverse.real, inverse.imaginary}));
}

void separate_square(ComplexSite& site) {
  const Number number = site.number(0);
  site.give(multiplied(site, "mul.Tensor", number, number));
}

/// z / |z|, 0 at 0.
void separate_sgn(ComplexSite& site) {
  const Scaled z = scaled(site, site.parts(0));
  const ir::Type& type = z.scale->type();
  Value* size = of_part(site, "sqrt.default", squared_size(site, z.parts));
  Value* is_zero = site.emit("eq.Scalar", {size, literal(std::int64_t{0})}, ir::Type::tensor(DType::kBool, type.shape));
  size = site.emit("where.self", {is_zero, of_part(site, "ones_like.default", size), size}, type);
  const auto over = [&](Value* part) { return site.emit("div.Tensor", {part, size}, type); };
  site.give({over(z.parts.real), over(z.parts.imaginary)});
}

constexpr std::int64_t kMostFactors = 16;

Parts as_parts(ComplexSite& site, std::size_t argument) {
  if (site.is_complex(argument)) return site.parts(argument);
  Value& real = site.value(argument);
  return {&real, site.zeros_like(real)};
}

Parts whole_power(ComplexSite& site, const Parts& z, std::int64_t exponent) {
  Parts power = z;
  for (std::int64_t i = 1; i < exponent; ++i) power = multiplied_parts(site, power, z);
  return power;
}

/// exp(w log z), where w is what argument 1 is.
Parts general_power(ComplexSite& site, const Parts& z) {
  const Parts log = logarithm(site, z);
  return exponential(site, multiplied(site, "mul.Tensor", {log.real, log.imaginary}, site.number(1)));
}

/// Small whole exponents are products; every other power is that of a number that is not 0.
void separate_power(ComplexSite& site) {
  const Parts z = as_parts(site, 0);
  const auto* whole = site.argument(1).get_if<std::int64_t>();
  const auto* number = site.argument(1).get_if<double>();
  const double exponent = whole ? static_cast<double>(*whole) : number ? *number : 0.5;
  const bool is_product = exponent == std::floor(exponent) && exponent != 0 && std::abs(exponent) <= kMostFactors;
  if (!is_product) return site.give(general_power(site, z));
  const Parts power = whole_power(site, z, static_cast<std::int64_t>(std::abs(exponent)));
  site.give(exponent < 0 ? inverted(site, power) : power);
}

void separate_abs(ComplexSite& site) { site.give_real(size_of(site, site.parts(0))); }

}  // namespace

void populate_arithmetic(LoweringTable& table) {
  table.add({"aten.add.Tensor", "aten.add.Scalar"}, lower_add);
  table.add({"aten.sub.Tensor", "aten.sub.Scalar", "aten.subtract.Tensor", "aten.subtract.Scalar"}, lower_sub);
  table.add({"aten.rsub.Tensor", "aten.rsub.Scalar"}, lower_rsub);
  table.add({"aten.mul.Tensor", "aten.mul.Scalar", "aten.multiply.Tensor", "aten.multiply.Scalar"}, lower_mul);
  table.add({"aten.div.Tensor", "aten.div.Scalar", "aten.divide.Tensor", "aten.divide.Scalar",
             "aten.true_divide.Tensor", "aten.true_divide.Scalar"},
            lower_div);
  table.add({"aten.div.Tensor_mode", "aten.div.Scalar_mode", "aten.divide.Tensor_mode", "aten.divide.Scalar_mode"},
            lower_div_mode);
  table.add({"aten.floor_divide.default", "aten.floor_divide.Scalar"}, lower_floor_divide);
  table.add({"aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor"}, lower_remainder);
  table.add({"aten.fmod.Tensor", "aten.fmod.Scalar"}, lower_fmod);
  table.add({"aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar", "aten.float_power.Tensor_Tensor",
             "aten.float_power.Tensor_Scalar", "aten.float_power.Scalar"},
            lower_pow);
  table.add("aten.square.default", lower_square);
  table.add({"aten.neg.default", "aten.negative.default"}, lower_neg);
  table.add({"aten.abs.default", "aten.absolute.default"}, lower_abs);
  table.add({"aten.sign.default", "aten.sgn.default"}, lower_sign);
  table.add("aten.reciprocal.default", lower_reciprocal);
  table.add("aten.positive.default", lower_positive);
  table.add({"aten.copysign.Tensor", "aten.copysign.Scalar"}, lower_copysign);
  table.add("aten.hypot.default", lower_hypot);
  table.add("aten.addcmul.default", lower_addcmul);
  table.add("aten.addcdiv.default", lower_addcdiv);
  table.add({"aten.lerp.Scalar", "aten.lerp.Tensor"}, lower_lerp);

  table.add_complex({"aten.neg.default"}, separate_each);
  table.add_complex({"aten.add.Tensor", "aten.add.Scalar", "aten.sub.Scalar", "aten.rsub.Scalar", "aten.rsub.Tensor",
                     "aten.sub.Tensor"},
                    separate_sum);
  table.add_complex({"aten.mul.Tensor"}, separate_product);
  table.add_complex({"aten.reciprocal.default"}, separate_reciprocal);
  table.add_complex({"aten.div.Tensor"}, separate_quotient);
  table.add_complex({"aten.square.default"}, separate_square);
  table.add_complex({"aten.sgn.default"}, separate_sgn);
  table.add_complex({"aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor"}, separate_power);
  table.add_complex({"aten.abs.default"}, separate_abs);
}

}  // namespace exportguard::lowering
