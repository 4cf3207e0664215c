#include <algorithm>
#include <memory>

#include "exportguard/lowering/table.h"
#include "lowering/complex_rules.h"
#include "lowering/dtype_limits.h"
#include "lowering/elementwise.h"
#include "lowering/integer_arithmetic.h"
#include "lowering/kernels.h"

namespace exportguard::lowering {
namespace {

Value* as_output(LoweringContext& ctx) { return ctx.widened(ctx.cast(ctx.input(0), ctx.output_dtype())); }

void lower_cumsum(LoweringContext& ctx) {
  Value* x = as_output(ctx);
  const std::size_t rank = ctx.rank(x);
  if (rank == 0) return ctx.result(x);
  Value* summable = ctx.cast(x, kernel_dtype(ctx, "CumSum", x->dtype()));
  ctx.result(ctx.op("CumSum", {summable, ctx.constant(ctx.axis(1, rank), DType::kInt64)}));
}

/// As wide as torch accumulates: a float32 in float64, halves in float32.
Value* as_accumulated(LoweringContext& ctx) {
  Value* x = as_output(ctx);
  const bool is_wider = ctx.output_dtype() == DType::kFloat32 && ctx.rank(x) > 0;
  return is_wider ? ctx.cast(x, DType::kFloat64) : x;
}

/// What has been gathered so far, joined with the next element.
using Step = Value* (*)(LoweringContext&, Value* state, Value* element);

struct Fold {
  Value* start;  ///< of rank 0
  Step step;
};

std::unique_ptr<ir::Graph> scan_body(LoweringContext& ctx, const ir::Type& slice, Step step) {
  auto body = std::make_unique<ir::Graph>("step");
  Value& state = body->add_input("state", slice);
  Value& element = body->add_input("element", slice);
  const LoweringContext::Inside inside(ctx, *body);
  Value* next = step(ctx, &state, &element);
  body->add_output(next, "next");
  body->add_output(ctx.op("Identity", {next}), "result");
  return body;
}

/// Every intermediate state of a fold along one axis, by Scan: ONNX has CumSum alone.
Value* scanned(LoweringContext& ctx, Value* x, std::int64_t axis, const Fold& fold) {
  std::vector<Size> sizes = ctx.sizes_of(x);
  sizes.erase(sizes.begin() + axis);
  ir::Shape slice = ctx.shape(x);
  slice.erase(slice.begin() + axis);
  Value* initial = ctx.filled(sizes, fold.start);
  auto body = scan_body(ctx, ir::Type::tensor(x->dtype(), slice), fold.step);
  const std::vector<std::int64_t> axes = {axis};
  const auto outputs = ctx.op_many(
      "Scan", {initial, x}, 2,
      {{"body", std::move(body)}, {"num_scan_inputs", 1}, {"scan_input_axes", axes}, {"scan_output_axes", axes}});
  outputs[0]->set_type(initial->type());
  outputs[1]->set_type(x->type());
  return outputs[1];
}

/// Where a Scan of nothing fails, a tensor that may be empty is looked at first.
Value* folded(LoweringContext& ctx, Value* x, std::int64_t axis, const Fold& fold) {
  const auto is_known = [](const ir::Dim& size) { return size.constant().value_or(0) != 0; };
  const bool may_be_empty = !std::ranges::all_of(ctx.shape(x), is_known);
  if (!may_be_empty || !departs(ctx, Departure::kScanOfNothing)) return scanned(ctx, x, axis, fold);

  auto nothing = std::make_unique<ir::Graph>("nothing");
  auto something = std::make_unique<ir::Graph>("something");
  Value* is_empty = ctx.op("Equal", {ctx.numel_of(x), ctx.constant(0, DType::kInt64)});
  {
    const LoweringContext::Inside inside(ctx, *nothing);
    nothing->add_output(ctx.op("Identity", {x}), "same");
  }
  {
    const LoweringContext::Inside inside(ctx, *something);
    something->add_output(scanned(ctx, x, axis, fold), "states");
  }

  Value* chosen =
      ctx.op("If", {is_empty}, {{"then_branch", std::move(nothing)}, {"else_branch", std::move(something)}});
  chosen->set_type(x->type());
  return chosen;
}

Value* product_step(LoweringContext& ctx, Value* state, Value* element) { return ctx.op("Mul", {state, element}); }
Value* larger_step(LoweringContext& ctx, Value* state, Value* element) { return larger_of(ctx, state, element); }
Value* smaller_step(LoweringContext& ctx, Value* state, Value* element) { return smaller_of(ctx, state, element); }

void lower_cumprod(LoweringContext& ctx) {
  Value* x = as_accumulated(ctx);
  const std::size_t rank = ctx.rank(x);
  ctx.result(rank == 0 ? x : folded(ctx, x, ctx.axis(1, rank), {ctx.number_like(1, x), product_step}));
}

void lower_logcumsumexp(LoweringContext& ctx) {
  Value* x = as_accumulated(ctx);
  const std::size_t rank = ctx.rank(x);
  ctx.result(rank == 0 ? x : folded(ctx, x, ctx.axis(1, rank), {lowest(ctx, x->dtype()), log_of_sum}));
}

/// The numbers 0, 1, … along the axis, shaped to broadcast over `x`.
Value* positions(LoweringContext& ctx, Value* x, std::int64_t axis) {
  Value* count = ctx.dim_scalar(x, axis);
  Value* range = ctx.op("Range", {ctx.constant(0, DType::kInt64), count, ctx.constant(1, DType::kInt64)});
  std::vector<Size> sizes(ctx.rank(x), 1);
  sizes[static_cast<std::size_t>(axis)] = -1;
  return ctx.reshape(range, sizes);
}

using Limit = Value* (*)(LoweringContext&, DType);

/// Running extremes and where each was met last. An element that equals the running extreme, or is NaN, has met it.
void lower_running_extreme(LoweringContext& ctx, Limit start, Step step) {
  Value* x = ctx.input(0);
  const std::size_t rank = ctx.rank(x);
  if (rank == 0) return ctx.results({x, ctx.constant(0, DType::kInt64)});
  const std::int64_t axis = ctx.axis(1, rank);
  Value* wide = ctx.cast(x, kernel_dtype(ctx, "Max", x->dtype()));
  Value* values = folded(ctx, wide, axis, {start(ctx, wide->dtype()), step});
  Value* is_met = ctx.op("Equal", {wide, values});
  if (is_floating(wide->dtype())) is_met = ctx.op("Or", {is_met, ctx.op("IsNaN", {wide})});
  Value* met = ctx.where(is_met, positions(ctx, x, axis), ctx.constant(0, DType::kInt64));
  met->set_type(ir::Type::tensor(DType::kInt64, ctx.shape(x)));
  ctx.results({values, folded(ctx, met, axis, {ctx.constant(0, DType::kInt64), larger_step})});
}

void lower_cummax(LoweringContext& ctx) { lower_running_extreme(ctx, lowest, larger_step); }
void lower_cummin(LoweringContext& ctx) { lower_running_extreme(ctx, highest, smaller_step); }

}  // namespace

void populate_cumulative(LoweringTable& table) {
  table.add("aten.cumsum.default", lower_cumsum);
  table.add("aten.cumprod.default", lower_cumprod);
  table.add("aten.logcumsumexp.default", lower_logcumsumexp);
  table.add("aten.cummax.default", lower_cummax);
  table.add("aten.cummin.default", lower_cummin);
  table.add_complex({"aten.cumsum.default"}, separate_each);
}

}  // namespace exportguard::lowering
