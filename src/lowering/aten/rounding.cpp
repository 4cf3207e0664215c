#include <cmath>

#include "exportguard/lowering/table.h"
#include "lowering/elementwise.h"
#include "lowering/kernels.h"

namespace exportguard::lowering {
namespace {

/// Rounds floats; integers are round.
void lower_as(LoweringContext& ctx, std::string_view op) {
  Value* x = ctx.input(0);
  ctx.result(is_floating(x->dtype()) ? kernel_op(ctx, op, {x}) : x);
}

void lower_ceil(LoweringContext& ctx) { lower_as(ctx, "Ceil"); }
void lower_floor(LoweringContext& ctx) { lower_as(ctx, "Floor"); }
void lower_round(LoweringContext& ctx) { lower_as(ctx, "Round"); }  // half to even, in ONNX as in torch

void lower_round_decimals(LoweringContext& ctx) {
  const std::int64_t decimals = ctx.has(1) ? ctx.integer(1) : 0;
  if (decimals == 0 || !is_floating(ctx.input(0)->dtype())) return lower_round(ctx);
  Value* x = ctx.widened(ctx.input(0));
  Value* scale = ctx.number_like(std::pow(10.0, static_cast<double>(std::abs(decimals))), x);
  const auto [enter, leave] = decimals > 0 ? std::pair("Mul", "Div") : std::pair("Div", "Mul");
  ctx.result(ctx.op(leave, {ctx.op("Round", {ctx.op(enter, {x, scale})}), scale}));
}

void lower_trunc(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  ctx.result(is_floating(x->dtype()) ? rounded_to_zero(ctx, x) : x);
}

void lower_frac(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  ctx.result(ctx.op("Sub", {x, rounded_to_zero(ctx, x)}));
}

}  // namespace

void populate_rounding(LoweringTable& table) {
  table.add("aten.ceil.default", lower_ceil);
  table.add("aten.floor.default", lower_floor);
  table.add("aten.round.default", lower_round);
  table.add({"aten.round.decimals", "aten.special_round.default"}, lower_round_decimals);
  table.add({"aten.trunc.default", "aten.fix.default"}, lower_trunc);
  table.add("aten.frac.default", lower_frac);
}

}  // namespace exportguard::lowering
