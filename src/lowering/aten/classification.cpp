#include <limits>

#include "exportguard/lowering/table.h"
#include "lowering/complex_parts.h"
#include "lowering/elementwise.h"
#include "lowering/kernels.h"

namespace exportguard::lowering {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A bool for each element, the same for all.
Value* everywhere(LoweringContext& ctx, bool flag) {
  return ctx.filled(ctx.sizes_of(ctx.input(0)), ctx.constant(flag, DType::kBool));
}

bool is_float_input(LoweringContext& ctx) { return is_floating(ctx.input(0)->dtype()); }

Value* compare_with(LoweringContext& ctx, std::string_view op, double number) {
  Value* x = ctx.input(0);
  return kernel_op(ctx, op, {x, ctx.number_like(number, x)});
}

void lower_isnan(LoweringContext& ctx) {
  ctx.result(is_float_input(ctx) ? kernel_op(ctx, "IsNaN", {ctx.input(0)}) : everywhere(ctx, false));
}

void lower_isinf(LoweringContext& ctx) {
  ctx.result(is_float_input(ctx) ? kernel_op(ctx, "IsInf", {ctx.input(0)}) : everywhere(ctx, false));
}

void lower_isfinite(LoweringContext& ctx) {
  if (!is_float_input(ctx)) return ctx.result(everywhere(ctx, true));
  Value* x = ctx.input(0);
  ctx.result(kernel_op(ctx, "Less", {ctx.op("Abs", {x}), ctx.number_like(kInfinity, x)}));  // NaN is not less
}

void lower_isposinf(LoweringContext& ctx) {
  ctx.result(is_float_input(ctx) ? compare_with(ctx, "Equal", kInfinity) : everywhere(ctx, false));
}

void lower_isneginf(LoweringContext& ctx) {
  ctx.result(is_float_input(ctx) ? compare_with(ctx, "Equal", -kInfinity) : everywhere(ctx, false));
}

void lower_isreal(LoweringContext& ctx) { ctx.result(everywhere(ctx, true)); }

void lower_signbit(LoweringContext& ctx) { ctx.result(sign_bit(ctx, ctx.input(0))); }

/// 0 below zero, `values` at zero, 1 above.
void lower_heaviside(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  Value* zero = ctx.number_like(0, x);
  Value* is_above = kernel_op(ctx, "Greater", {x, zero});
  Value* is_zero = kernel_op(ctx, "Equal", {x, zero});
  ctx.result(ctx.where(is_zero, ctx.input(1), ctx.cast(is_above, x->dtype())));
}

/// Of each part whether it holds, and both answers together.
void ask_parts(ComplexSite& site, std::string_view question, std::string_view together) {
  const Parts z = site.parts(0);
  const ir::Type type = site.node().output().type();
  site.give_real(
      site.emit(together, {site.emit(question, {z.real}, type), site.emit(question, {z.imaginary}, type)}, type));
}

void separate_isnan(ComplexSite& site) { ask_parts(site, "isnan.default", "logical_or.default"); }
void separate_isinf(ComplexSite& site) { ask_parts(site, "isinf.default", "logical_or.default"); }
void separate_isfinite(ComplexSite& site) { ask_parts(site, "isfinite.default", "logical_and.default"); }

}  // namespace

void populate_classification(LoweringTable& table) {
  table.add("aten.isnan.default", lower_isnan);
  table.add("aten.isinf.default", lower_isinf);
  table.add("aten.isfinite.default", lower_isfinite);
  table.add("aten.isposinf.default", lower_isposinf);
  table.add("aten.isneginf.default", lower_isneginf);
  table.add("aten.isreal.default", lower_isreal);
  table.add("aten.signbit.default", lower_signbit);
  table.add("aten.heaviside.default", lower_heaviside);
  table.add_complex({"aten.isnan.default"}, separate_isnan);
  table.add_complex({"aten.isinf.default"}, separate_isinf);
  table.add_complex({"aten.isfinite.default"}, separate_isfinite);
}

}  // namespace exportguard::lowering
