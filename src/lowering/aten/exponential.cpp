#include <ATen/ops/full.h>
#include <ATen/ops/ldexp.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <numbers>

#include "exportguard/lowering/table.h"
#include "lowering/complex_arithmetic.h"
#include "lowering/elementwise.h"
#include "lowering/kernels.h"

namespace exportguard::lowering {
namespace {

Value* as_output_dtype(LoweringContext& ctx) { return ctx.cast(ctx.input(0), ctx.output_dtype()); }

void lower_exp(LoweringContext& ctx) { ctx.result(kernel_op(ctx, "Exp", {as_output_dtype(ctx)})); }
void lower_log(LoweringContext& ctx) { ctx.result(kernel_op(ctx, "Log", {as_output_dtype(ctx)})); }
void lower_sqrt(LoweringContext& ctx) { ctx.result(kernel_op(ctx, "Sqrt", {as_output_dtype(ctx)})); }
void lower_expm1(LoweringContext& ctx) { ctx.result(exp_minus_one(ctx, rounded_once(ctx, as_output_dtype(ctx)))); }
void lower_log1p(LoweringContext& ctx) { ctx.result(log_one_plus(ctx, rounded_once(ctx, as_output_dtype(ctx)))); }

void lower_rsqrt(LoweringContext& ctx) {
  ctx.result(ctx.op("Reciprocal", {kernel_op(ctx, "Sqrt", {rounded_once(ctx, as_output_dtype(ctx))})}));
}

void lower_exp2(LoweringContext& ctx) {
  Value* x = as_output_dtype(ctx);
  ctx.result(kernel_op(ctx, "Pow", {ctx.number_like(2, x), x}));
}

/// The power of two of a float64 of whole numbers, where that is an ordinary number; `rest` is what is beyond it.
Value* ordinary_power(LoweringContext& ctx, Value* exponent, Value** rest) {
  Value* part = ctx.op("Clip", {exponent, ctx.number_like(-1022, exponent), ctx.number_like(1023, exponent)});
  *rest = ctx.op("Sub", {exponent, part});
  return ctx.op("Pow", {ctx.number_like(2, exponent), part});
}

/// x * 2^exponent of whole exponents, as C's `ldexp`: rounded once, although the power alone may be no float.
Value* scaled_by_power(LoweringContext& ctx, Value* x, Value* exponent) {
  const DType dtype = ctx.output_dtype();
  Value* rest = ctx.cast(ctx.cast(exponent, DType::kInt32), DType::kFloat64);  // torch keeps the low 32 bits
  Value* wide = ctx.cast(x, DType::kFloat64);
  if (dtype != DType::kFloat64) {  // the product of a narrow float and an ordinary power is exact in float64
    return ctx.cast(ctx.op("Mul", {wide, ordinary_power(ctx, rest, &rest)}), DType::kFloat32);
  }
  Value* first = ordinary_power(ctx, rest, &rest);
  Value* second = ordinary_power(ctx, rest, &rest);
  Value* third = ordinary_power(ctx, rest, &rest);
  // The largest power comes last: before it nothing is rounded that would not be zero in the end.
  return ctx.op("Mul", {ctx.op("Mul", {ctx.op("Mul", {wide, third}), second}), first});
}

/// Whether torch scales floats by whole exponents as C does. Before 2.13 it multiplies by a power that may be infinite,
/// as it still does of integers, and by exponents that are no integers.
bool scales_exactly() {
  static const bool is_exact = !at::ldexp(at::zeros({1}), at::full({1}, 300, at::kLong)).isnan().item<bool>();
  return is_exact;
}

void lower_ldexp(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  Value* exponent = ctx.input(1);
  if (is_floating(x->dtype()) && is_integral(exponent->dtype()) && scales_exactly()) {
    return ctx.result(scaled_by_power(ctx, x, exponent));
  }
  if (!is_floating(exponent->dtype())) exponent = ctx.cast(exponent, DType::kFloat32);
  Value* power = same_dtype_op(ctx, "Pow", {ctx.number_like(2, exponent), exponent});
  const DType dtype = ctx.output_dtype();
  ctx.result(kernel_op(ctx, "Mul", {ctx.cast(x, dtype), ctx.cast(power, dtype)}));
}

/// In float64, so that powers of the base have whole logarithms.
Value* log_to_base(LoweringContext& ctx, double log_of_base) {
  Value* logarithm = ctx.op("Log", {ctx.cast(ctx.input(0), DType::kFloat64)});
  return ctx.op("Div", {logarithm, ctx.number_like(log_of_base, logarithm)});
}

void lower_log2(LoweringContext& ctx) { ctx.result(log_to_base(ctx, std::numbers::ln2)); }
void lower_log10(LoweringContext& ctx) { ctx.result(log_to_base(ctx, std::numbers::ln10)); }

Value* widened_operand(LoweringContext& ctx, std::size_t i) { return ctx.widened(ctx.scalar(i, ctx.output_dtype())); }

void lower_logaddexp(LoweringContext& ctx) {
  ctx.result(log_of_sum(ctx, widened_operand(ctx, 0), widened_operand(ctx, 1)));
}

void lower_logaddexp2(LoweringContext& ctx) {
  Value* a = widened_operand(ctx, 0);
  Value* base = ctx.number_like(std::numbers::ln2, a);
  Value* sum = log_of_sum(ctx, ctx.op("Mul", {a, base}), ctx.op("Mul", {widened_operand(ctx, 1), base}));
  ctx.result(ctx.op("Div", {sum, base}));
}

/// x * factor, but 0 where x is 0 and NaN where `y` is.
Value* times_logarithm(LoweringContext& ctx, Value* x, Value* y, Value* logarithm) {
  Value* zero = ctx.number_like(0, x);
  Value* product = ctx.where(ctx.op("Equal", {x, zero}), zero, ctx.op("Mul", {x, logarithm}));
  return ctx.where(ctx.op("IsNaN", {y}), y, product);
}

void lower_xlogy(LoweringContext& ctx) {
  Value* y = ctx.scalar(1, ctx.output_dtype());
  ctx.result(times_logarithm(ctx, ctx.scalar(0, ctx.output_dtype()), y, ctx.op("Log", {y})));
}

void lower_xlog1py(LoweringContext& ctx) {
  Value* y = ctx.scalar(1, ctx.output_dtype());
  ctx.result(times_logarithm(ctx, ctx.scalar(0, ctx.output_dtype()), y, log_one_plus(ctx, y)));
}

/// -x log(x), 0 at 0, and -inf below.
void lower_entr(LoweringContext& ctx) {
  Value* x = as_output_dtype(ctx);
  Value* zero = ctx.number_like(0, x);
  Value* entropy = ctx.op("Neg", {ctx.op("Mul", {x, ctx.op("Log", {x})})});
  Value* at_zero = ctx.where(ctx.op("Equal", {x, zero}), zero, entropy);
  Value* below = ctx.constant(-std::numeric_limits<double>::infinity(), x->dtype());
  ctx.result(ctx.where(ctx.op("Less", {x, zero}), below, at_zero));
}

/// log(x / (1 - x)), x first clamped to [eps, 1 - eps], which are numbers of its own dtype: 0.999 is 1 in bfloat16.
void lower_logit(LoweringContext& ctx) {
  Value* given = as_output_dtype(ctx);
  Value* x = ctx.widened(given);
  if (ctx.has(1)) {
    const double eps = ctx.number(1);
    const auto end = [&](double number) { return ctx.widened(ctx.number_like(number, given)); };
    x = ctx.op("Clip", {x, end(eps), end(1 - eps)});
  }
  Value* rest = ctx.op("Sub", {ctx.number_like(1, x), x});
  ctx.result(ctx.op("Log", {ctx.op("Div", {x, rest})}));
}

Parts times_number(ComplexSite& site, const Parts& z, double factor) {
  const ir::Type& type = z.real->type();
  return {product(site, z.real, literal(factor), type), product(site, z.imaginary, literal(factor), type)};
}

Parts plus_number(ComplexSite& site, const Parts& z, double term) {
  return {site.emit("add.Tensor", {z.real, literal(term)}, z.real->type()), z.imaginary};
}

void separate_exp2(ComplexSite& site) {
  site.give(exponential(site, times_number(site, site.parts(0), std::numbers::ln2)));
}

void separate_expm1(ComplexSite& site) { site.give(plus_number(site, exponential(site, site.parts(0)), -1)); }
void separate_log1p(ComplexSite& site) { site.give(logarithm(site, plus_number(site, site.parts(0), 1))); }

void separate_log2(ComplexSite& site) {
  site.give(times_number(site, logarithm(site, site.parts(0)), std::numbers::log2e));
}

void separate_log10(ComplexSite& site) {
  site.give(times_number(site, logarithm(site, site.parts(0)), std::numbers::log10e));
}

void separate_exp(ComplexSite& site) { site.give(exponential(site, site.parts(0))); }
void separate_log(ComplexSite& site) { site.give(logarithm(site, site.parts(0))); }

void separate_sqrt(ComplexSite& site) { site.give(square_root(site, site.parts(0))); }
void separate_rsqrt(ComplexSite& site) { site.give(inverted(site, square_root(site, site.parts(0)))); }

}  // namespace

void populate_exponential(LoweringTable& table) {
  table.add("aten.exp.default", lower_exp);
  table.add({"aten.exp2.default", "aten.special_exp2.default"}, lower_exp2);
  table.add("aten.ldexp.Tensor", lower_ldexp);
  table.add({"aten.expm1.default", "aten.special_expm1.default"}, lower_expm1);
  table.add("aten.log.default", lower_log);
  table.add("aten.log2.default", lower_log2);
  table.add("aten.log10.default", lower_log10);
  table.add({"aten.log1p.default", "aten.special_log1p.default"}, lower_log1p);
  table.add("aten.sqrt.default", lower_sqrt);
  table.add("aten.rsqrt.default", lower_rsqrt);
  table.add("aten.logaddexp.default", lower_logaddexp);
  table.add("aten.logaddexp2.default", lower_logaddexp2);
  table.add({"aten.xlogy.Tensor", "aten.xlogy.Scalar_Other", "aten.xlogy.Scalar_Self", "aten.special_xlogy.default",
             "aten.special_xlogy.other_scalar", "aten.special_xlogy.self_scalar"},
            lower_xlogy);
  table.add({"aten.special_xlog1py.default", "aten.special_xlog1py.other_scalar", "aten.special_xlog1py.self_scalar"},
            lower_xlog1py);
  table.add("aten.special_entr.default", lower_entr);
  table.add({"aten.logit.default", "aten.special_logit.default"}, lower_logit);

  table.add_complex({"aten.exp.default"}, separate_exp);
  table.add_complex({"aten.exp2.default"}, separate_exp2);
  table.add_complex({"aten.expm1.default"}, separate_expm1);
  table.add_complex({"aten.log.default"}, separate_log);
  table.add_complex({"aten.log2.default"}, separate_log2);
  table.add_complex({"aten.log10.default"}, separate_log10);
  table.add_complex({"aten.log1p.default"}, separate_log1p);
  table.add_complex({"aten.sqrt.default"}, separate_sqrt);
  table.add_complex({"aten.rsqrt.default"}, separate_rsqrt);
}

}  // namespace exportguard::lowering
