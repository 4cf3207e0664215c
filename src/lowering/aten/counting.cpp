#include <optional>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/checks.h"
#include "lowering/kernels.h"
#include "lowering/scatter.h"
#include "lowering/size_arithmetic.h"
#include "lowering/vectors.h"

namespace exportguard::lowering {
namespace {

/// How often each bin is named, or the weights added up: a vector of `bins` elements.
Value* tallied(LoweringContext& ctx, Value* bin_of_element, Value* weights, const Size& bins) {
  Value* zeros = ctx.filled({bins}, ctx.constant(0, weights->dtype()));
  return scatter_elements(ctx, zeros, 0, bin_of_element, weights, Reduction::kAdd);
}

Value* ones_like(LoweringContext& ctx, Value* vector, DType dtype) {
  return ctx.filled({size_of(ctx, vector, 0)}, ctx.constant(1, dtype));
}

void lower_bincount(LoweringContext& ctx) {
  Value* x = ctx.cast(ctx.input(0), DType::kInt64);
  x = stops_unless(ctx, none_below(ctx, x, 0), x);
  // -1 in front: an empty list has no greatest number, and needs no bin.
  Value* greatest = ctx.reduce("ReduceMax", ctx.concat({ctx.ints({-1}), x}, 0), {0}, true);
  const Size bins = maximum(ctx, Size(ctx.op("Add", {greatest, ctx.ints({1})})), ctx.sizes(2).front());
  Value* weights = ctx.has(1) ? ctx.cast(ctx.input(1), ctx.output_dtype()) : ones_like(ctx, x, DType::kInt64);
  ctx.result(tallied(ctx, x, weights, bins));
}

// ------------------------------------------------------------------------------------------------ histograms

struct Interval {
  Value* low;
  Value* high;
};

/// The interval as it was given, or from the least to the greatest element; wider by `margin` on both sides if that is
/// a point.
Interval widened_interval(LoweringContext& ctx, Value* x, const std::optional<Interval>& given, double margin) {
  const Interval found =
      given ? *given : Interval{ctx.reduce("ReduceMin", x, {0}, false), ctx.reduce("ReduceMax", x, {0}, false)};
  Value* is_point = ctx.op("Equal", {found.low, found.high});
  Value* step = ctx.constant(margin, x->dtype());
  return {ctx.where(is_point, ctx.op("Sub", {found.low, step}), found.low),
          ctx.where(is_point, ctx.op("Add", {found.high, step}), found.high)};
}

/// Elements outside of the interval weigh nothing; the last bin takes its upper end.
Value* histogram(LoweringContext& ctx, Value* x, Value* weights, const Interval& interval, std::int64_t bins) {
  Value* width = ctx.op("Sub", {interval.high, interval.low});
  Value* share = ctx.op("Div", {ctx.op("Sub", {x, interval.low}), width});
  Value* scaled = ctx.op("Floor", {ctx.op("Mul", {share, ctx.constant(bins, x->dtype())})});
  Value* is_inside =
      ctx.op("And", {ctx.op("GreaterOrEqual", {x, interval.low}), ctx.op("LessOrEqual", {x, interval.high})});
  Value* zero = ctx.constant(0, x->dtype());
  Value* clipped = ctx.op("Clip", {ctx.where(is_inside, scaled, zero), zero, ctx.constant(bins - 1, x->dtype())});
  Value* counted = ctx.where(is_inside, weights, zero);
  return tallied(ctx, ctx.cast(clipped, DType::kInt64), counted, bins);
}

void lower_histc(LoweringContext& ctx) {
  const DType dtype = is_floating(ctx.input(0)->dtype()) ? ctx.input(0)->dtype() : DType::kFloat64;
  const DType carrier = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  Value* x = ctx.cast(flattened(ctx, ctx.input(0)), carrier);
  std::optional<Interval> given;
  if (ctx.number(2) != ctx.number(3)) given = {ctx.scalar(2, carrier), ctx.scalar(3, carrier)};
  ctx.result(histogram(ctx, x, ones_like(ctx, x, carrier), widened_interval(ctx, x, given, 1), ctx.integer(1)));
}

/// The ends of equally wide bins: int + 1 numbers from low to high.
Value* even_edges(LoweringContext& ctx, const Interval& interval, std::int64_t bins) {
  const DType dtype = interval.low->dtype();
  Value* steps = ctx.cast(range(ctx, bins + 1), dtype);
  Value* width = ctx.op("Div", {ctx.op("Sub", {interval.high, interval.low}), ctx.constant(bins, dtype)});
  Value* edges = ctx.op("Add", {interval.low, ctx.op("Mul", {steps, width})});
  Value* is_last = ctx.op("Equal", {range(ctx, bins + 1), ctx.constant(bins, DType::kInt64)});
  return ctx.where(is_last, interval.high, edges);
}

/// Divided by the whole weight and by the width of each bin.
Value* as_density(LoweringContext& ctx, Value* counts, Value* edges) {
  Value* widths = ctx.op("Sub", {ctx.slice(edges, 0, 1, kEnd), ctx.slice(edges, 0, 0, -1)});
  Value* total = ctx.reduce("ReduceSum", counts, {0}, false);
  return ctx.op("Div", {counts, ctx.op("Mul", {total, widths})});
}

Value* weights_of(LoweringContext& ctx, std::size_t argument, Value* x) {
  return ctx.has(argument) ? flattened(ctx, ctx.cast(ctx.input(argument), x->dtype())) : ones_like(ctx, x, x->dtype());
}

void lower_histogram_by_count(LoweringContext& ctx) {
  Value* x = flattened(ctx, ctx.input(0));
  std::optional<Interval> given;
  if (ctx.has(2))
    given = {ctx.constant(ctx.numbers(2).at(0), x->dtype()), ctx.constant(ctx.numbers(2).at(1), x->dtype())};
  const Interval interval = widened_interval(ctx, x, given, 0.5);
  Value* counts = histogram(ctx, x, weights_of(ctx, 3, x), interval, ctx.integer(1));
  Value* edges = even_edges(ctx, interval, ctx.integer(1));
  ctx.results({ctx.flag(4) ? as_density(ctx, counts, edges) : counts, edges});
}

void lower_histogram_by_edges(LoweringContext& ctx) {
  Value* x = flattened(ctx, ctx.input(0));
  Value* edges = ctx.input(1);
  const Size bins = subtract(ctx, size_of(ctx, edges, 0), 1);
  Value* not_above = ctx.cast(ctx.op("LessOrEqual", {edges, ctx.unsqueeze(x, {1})}), DType::kInt64);
  Value* place = ctx.op("Sub", {ctx.reduce("ReduceSum", not_above, {1}, false), ctx.constant(1, DType::kInt64)});
  Value* last = as_dim(ctx, subtract(ctx, bins, 1));
  Value* highest_edge = ctx.gather(edges, ctx.constant(-1, DType::kInt64), 0);
  Value* is_inside = ctx.op("And", {ctx.op("GreaterOrEqual", {place, ctx.constant(0, DType::kInt64)}),
                                    ctx.op("LessOrEqual", {x, highest_edge})});
  Value* bin = ctx.op("Max", {ctx.op("Min", {place, last}), ctx.constant(0, DType::kInt64)});
  Value* counted = ctx.where(is_inside, weights_of(ctx, 2, x), ctx.constant(0, x->dtype()));
  Value* counts = tallied(ctx, bin, counted, bins);
  ctx.results({ctx.flag(3) ? as_density(ctx, counts, edges) : counts, edges});
}

}  // namespace

void populate_counting(LoweringTable& table) {
  table.add("aten.bincount.default", lower_bincount);
  table.add("aten.histc.default", lower_histc);
  table.add("aten.histogram.bin_ct", lower_histogram_by_count);
  table.add("aten.histogram.bins_tensor", lower_histogram_by_edges);
}

}  // namespace exportguard::lowering
