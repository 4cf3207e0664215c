#include <numbers>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/kernels.h"

/// Operators for complex numbers on real ones. Complex tensors are taken apart before: see complex_parts.h.
namespace exportguard::lowering {
namespace {

void lower_same(LoweringContext& ctx) { ctx.result(ctx.input(0)); }

/// Pi below zero, 0 above; NaN stays.
void lower_angle(LoweringContext& ctx) {
  Value* x = ctx.cast(ctx.input(0), ctx.output_dtype());
  Value* zero = ctx.number_like(0, x);
  Value* is_negative = kernel_op(ctx, "Less", {x, zero});
  Value* angle = ctx.where(is_negative, ctx.number_like(std::numbers::pi, x), zero);
  Value* is_number = kernel_op(ctx, "Equal", {x, x});
  ctx.result(ctx.where(is_number, angle, x));
}

}  // namespace

void populate_complex(LoweringTable& table) {
  table.add("aten.angle.default", lower_angle);
  table.add({"aten.real.default", "aten.conj.default", "aten.conj_physical.default", "aten._conj.default"}, lower_same);
}

}  // namespace exportguard::lowering
