#include <numbers>

#include "exportguard/lowering/table.h"
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
  ctx.result(ctx.where(sign_bit(ctx, y), ctx.op("Neg", {above}), above));
}

void lower_deg2rad(LoweringContext& ctx) {
  Value* x = ctx.cast(ctx.input(0), ctx.output_dtype());
  ctx.result(ctx.op("Mul", {x, ctx.number_like(std::numbers::pi / 180, x)}));
}

void lower_rad2deg(LoweringContext& ctx) {
  Value* x = ctx.cast(ctx.input(0), ctx.output_dtype());
  ctx.result(ctx.op("Mul", {x, ctx.number_like(180 / std::numbers::pi, x)}));
}

/// sin(πx) / πx, 1 at 0.
void lower_sinc(LoweringContext& ctx) {
  Value* x = ctx.cast(ctx.input(0), ctx.output_dtype());
  Value* angle = ctx.op("Mul", {x, ctx.number_like(std::numbers::pi, x)});
  Value* ratio = ctx.op("Div", {ctx.op("Sin", {angle}), angle});
  ctx.result(ctx.where(kernel_op(ctx, "Equal", {angle, ctx.number_like(0, x)}), ctx.number_like(1, x), ratio));
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
}

}  // namespace exportguard::lowering
