#include <numbers>

#include "exportguard/lowering/table.h"
#include "lowering/complex_arithmetic.h"
#include "lowering/double_functions.h"
#include "lowering/elementwise.h"
#include "lowering/kernels.h"

namespace exportguard::lowering {
namespace {

/// One ONNX operator over the input in the dtype of the output; integers become floats.
void lower_as(LoweringContext& ctx, std::string_view op) {
  ctx.result(float_function(ctx, op, ctx.cast(ctx.input(0), ctx.output_dtype())));
}

void lower_sin(LoweringContext& ctx) { lower_as(ctx, "Sin"); }
void lower_cos(LoweringContext& ctx) { lower_as(ctx, "Cos"); }
void lower_tan(LoweringContext& ctx) { lower_as(ctx, "Tan"); }
void lower_asin(LoweringContext& ctx) { lower_as(ctx, "Asin"); }
void lower_acos(LoweringContext& ctx) { lower_as(ctx, "Acos"); }
void lower_atan(LoweringContext& ctx) { lower_as(ctx, "Atan"); }
void lower_sinh(LoweringContext& ctx) { lower_as(ctx, "Sinh"); }
void lower_cosh(LoweringContext& ctx) { lower_as(ctx, "Cosh"); }
void lower_asinh(LoweringContext& ctx) { lower_as(ctx, "Asinh"); }
void lower_acosh(LoweringContext& ctx) { lower_as(ctx, "Acosh"); }
void lower_atanh(LoweringContext& ctx) { lower_as(ctx, "Atanh"); }

/// The angle of (x, y) from the positive x axis, in (-π, π]; the signs of zeros tell the side as in C.
void lower_atan2(LoweringContext& ctx) {
  const DType dtype = ctx.output_dtype();
  Value* y = ctx.widened(ctx.scalar(0, dtype));
  Value* x = ctx.widened(ctx.scalar(1, dtype));
  Value* zero = ctx.number_like(0, y);
  Value* both = ctx.op("Equal", {ctx.op("Abs", {y}), ctx.op("Abs", {x})});  // 0/0 and inf/inf among them
  Value* is_origin = ctx.op("Equal", {ctx.op("Add", {ctx.op("Abs", {y}), ctx.op("Abs", {x})}), zero});
  Value* diagonal = ctx.where(is_origin, zero, ctx.number_like(1, y));
  Value* slope = ctx.where(both, diagonal, ctx.op("Abs", {ctx.op("Div", {y, x})}));
  Value* acute = float_function(ctx, "Atan", slope);
  Value* obtuse = ctx.op("Sub", {ctx.number_like(std::numbers::pi, y), acute});
  Value* above = ctx.where(sign_bit(ctx, x), obtuse, acute);
  ctx.result(with_sign(ctx, sign_bit(ctx, y), above));
}

void lower_deg2rad(LoweringContext& ctx) {
  Value* x = ctx.cast(ctx.input(0), ctx.output_dtype());
  ctx.result(ctx.op("Mul", {x, ctx.number_like(std::numbers::pi / 180, x)}));
}

void lower_rad2deg(LoweringContext& ctx) {
  Value* x = ctx.cast(ctx.input(0), ctx.output_dtype());
  ctx.result(ctx.op("Mul", {x, ctx.number_like(180 / std::numbers::pi, x)}));
}

/// sin(πx) / πx, 1 at 0; the angle of halves as a float32, as in torch.
void lower_sinc(LoweringContext& ctx) {
  Value* x = ctx.widened(ctx.cast(ctx.input(0), ctx.output_dtype()));
  Value* angle = ctx.op("Mul", {x, ctx.number_like(std::numbers::pi, x)});
  Value* ratio = ctx.op("Div", {ctx.op("Sin", {angle}), angle});
  ctx.result(ctx.where(kernel_op(ctx, "Equal", {angle, ctx.number_like(0, x)}), ctx.number_like(1, x), ratio));
}

/// f(a) g(b) and f'(a) g'(b): sines and cosines of complex numbers are products of real ones.
struct Curves {
  std::string_view of_real;
  std::string_view of_imaginary;
};

Value* product_of(ComplexSite& site, const Parts& z, const Curves& curves) {
  return product(site, of_part(site, curves.of_real, z.real), of_part(site, curves.of_imaginary, z.imaginary),
                 z.real->type());
}

Parts sine(ComplexSite& site, const Parts& z) {
  return {product_of(site, z, {"sin.default", "cosh.default"}), product_of(site, z, {"cos.default", "sinh.default"})};
}

Parts cosine(ComplexSite& site, const Parts& z) {
  Value* imaginary = product_of(site, z, {"sin.default", "sinh.default"});
  return {product_of(site, z, {"cos.default", "cosh.default"}), of_part(site, "neg.default", imaginary)};
}

Parts hyperbolic_sine(ComplexSite& site, const Parts& z) {
  return {product_of(site, z, {"sinh.default", "cos.default"}), product_of(site, z, {"cosh.default", "sin.default"})};
}

Parts hyperbolic_cosine(ComplexSite& site, const Parts& z) {
  return {product_of(site, z, {"cosh.default", "cos.default"}), product_of(site, z, {"sinh.default", "sin.default"})};
}

/// tanh(a + bi) = (tanh a + i tan b) / (1 + i tanh a tan b), which does not overflow.
Parts hyperbolic_tangent(ComplexSite& site, const Parts& z) {
  const ir::Type& type = z.real->type();
  Value* a = of_part(site, "tanh.default", z.real);
  Value* b = of_part(site, "tan.default", z.imaginary);
  Value* ones = of_part(site, "ones_like.default", a);
  return multiplied_parts(site, {a, b}, inverted(site, {ones, product(site, a, b, type)}));
}

void separate_sin(ComplexSite& site) { site.give(sine(site, site.parts(0))); }
void separate_cos(ComplexSite& site) { site.give(cosine(site, site.parts(0))); }
void separate_sinh(ComplexSite& site) { site.give(hyperbolic_sine(site, site.parts(0))); }
void separate_cosh(ComplexSite& site) { site.give(hyperbolic_cosine(site, site.parts(0))); }

void separate_tanh(ComplexSite& site) { site.give(hyperbolic_tangent(site, site.parts(0))); }

/// i z
Parts turned(ComplexSite& site, const Parts& z) { return {of_part(site, "neg.default", z.imaginary), z.real}; }

/// -i z
Parts turned_back(ComplexSite& site, const Parts& z) { return {z.imaginary, of_part(site, "neg.default", z.real)}; }

/// tan(z) = -i tanh(i z)
void separate_tan(ComplexSite& site) {
  site.give(turned_back(site, hyperbolic_tangent(site, turned(site, site.parts(0)))));
}

/// The roots of 1 - z and 1 + z, of which W. Kahan's inverse functions are made: nothing cancels near ±1, and the signs
/// of zeros tell the sides of the cuts.
struct Roots {
  Parts of_difference;
  Parts of_sum;
};

Roots roots(ComplexSite& site, const Parts& z) {
  const ir::Type& type = z.real->type();
  const auto beside_one = [&](std::string_view op, Value* imaginary) {
    return square_root(site, {site.emit(op, {z.real, literal(std::int64_t{1})}, type), imaginary});
  };
  return {beside_one("rsub.Scalar", of_part(site, "neg.default", z.imaginary)), beside_one("add.Scalar", z.imaginary)};
}

/// The imaginary part of conj(a) b.
Value* imaginary_of_conjugated(ComplexSite& site, const Parts& a, const Parts& b) {
  const ir::Type& type = a.real->type();
  return site.emit("sub.Tensor", {product(site, a.real, b.imaginary, type), product(site, a.imaginary, b.real, type)},
                   type);
}

Parts inverse_sine(ComplexSite& site, const Parts& z) {
  const ir::Type& type = z.real->type();
  const auto [difference, sum] = roots(site, z);
  Value* beside = multiplied_parts(site, difference, sum).real;
  return {site.emit("atan2.default", {z.real, beside}, type),
          of_part(site, "asinh.default", imaginary_of_conjugated(site, difference, sum))};
}

Value* twice_the_angle(ComplexSite& site, Value* y, Value* x) {
  Value* angle = site.emit("atan2.default", {y, x}, y->type());
  return product(site, angle, literal(std::int64_t{2}), y->type());
}

void separate_asin(ComplexSite& site) { site.give(inverse_sine(site, site.parts(0))); }

void separate_acos(ComplexSite& site) {
  const auto [difference, sum] = roots(site, site.parts(0));
  site.give({twice_the_angle(site, difference.real, sum.real),
             of_part(site, "asinh.default", imaginary_of_conjugated(site, sum, difference))});
}

/// asinh(z) = -i asin(i z)
void separate_asinh(ComplexSite& site) {
  site.give(turned_back(site, inverse_sine(site, turned(site, site.parts(0)))));
}

void separate_acosh(ComplexSite& site) {
  const Parts z = site.parts(0);
  const ir::Type& type = z.real->type();
  const auto root = [&](std::int64_t number) {
    return square_root(site, {site.emit("add.Scalar", {z.real, literal(number)}, type), z.imaginary});
  };
  const Parts difference = root(-1);
  const Parts sum = root(1);
  Value* real = site.emit(
      "add.Tensor",
      {product(site, difference.real, sum.real, type), product(site, difference.imaginary, sum.imaginary, type)}, type);
  site.give({of_part(site, "asinh.default", real), twice_the_angle(site, difference.imaginary, sum.real)});
}

/// log1p(4 a / ((1 - a)² + b²)) / 4 and atan2(2 b, (1 - a)(1 + a) - b²) / 2
Parts inverse_hyperbolic_tangent(ComplexSite& site, const Parts& z) {
  const ir::Type& type = z.real->type();
  const auto scaled_by = [&](Value* x, double factor) { return product(site, x, literal(factor), type); };
  Value* rest = site.emit("rsub.Scalar", {z.real, literal(std::int64_t{1})}, type);
  Value* more = site.emit("add.Scalar", {z.real, literal(std::int64_t{1})}, type);
  Value* squared = product(site, z.imaginary, z.imaginary, type);
  Value* size = site.emit("add.Tensor", {product(site, rest, rest, type), squared}, type);
  Value* ratio = site.emit("div.Tensor", {scaled_by(z.real, 4), size}, type);
  Value* beside = site.emit("sub.Tensor", {product(site, rest, more, type), squared}, type);
  Value* angle = site.emit("atan2.default", {scaled_by(z.imaginary, 2), beside}, type);
  return {scaled_by(of_part(site, "log1p.default", ratio), 0.25), scaled_by(angle, 0.5)};
}

void separate_atanh(ComplexSite& site) { site.give(inverse_hyperbolic_tangent(site, site.parts(0))); }

/// atan(z) = -i atanh(i z)
void separate_atan(ComplexSite& site) {
  site.give(turned_back(site, inverse_hyperbolic_tangent(site, turned(site, site.parts(0)))));
}

}  // namespace

void populate_trigonometry(LoweringTable& table) {
  table.add("aten.sin.default", lower_sin);
  table.add("aten.cos.default", lower_cos);
  table.add("aten.tan.default", lower_tan);
  table.add({"aten.asin.default", "aten.arcsin.default"}, lower_asin);
  table.add({"aten.acos.default", "aten.arccos.default"}, lower_acos);
  table.add({"aten.atan.default", "aten.arctan.default"}, lower_atan);
  table.add("aten.sinh.default", lower_sinh);
  table.add("aten.cosh.default", lower_cosh);
  table.add({"aten.asinh.default", "aten.arcsinh.default"}, lower_asinh);
  table.add({"aten.acosh.default", "aten.arccosh.default"}, lower_acosh);
  table.add({"aten.atanh.default", "aten.arctanh.default"}, lower_atanh);
  table.add({"aten.atan2.default", "aten.arctan2.default"}, lower_atan2);
  table.add("aten.deg2rad.default", lower_deg2rad);
  table.add("aten.rad2deg.default", lower_rad2deg);
  table.add({"aten.sinc.default", "aten.special_sinc.default"}, lower_sinc);

  table.add_complex({"aten.sin.default"}, separate_sin);
  table.add_complex({"aten.cos.default"}, separate_cos);
  table.add_complex({"aten.tan.default"}, separate_tan);
  table.add_complex({"aten.sinh.default"}, separate_sinh);
  table.add_complex({"aten.cosh.default"}, separate_cosh);
  table.add_complex({"aten.tanh.default"}, separate_tanh);
  table.add_complex({"aten.asin.default"}, separate_asin);
  table.add_complex({"aten.acos.default"}, separate_acos);
  table.add_complex({"aten.atan.default"}, separate_atan);
  table.add_complex({"aten.asinh.default"}, separate_asinh);
  table.add_complex({"aten.acosh.default"}, separate_acosh);
  table.add_complex({"aten.atanh.default"}, separate_atanh);
}

}  // namespace exportguard::lowering
