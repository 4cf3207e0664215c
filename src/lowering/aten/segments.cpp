#include <limits>
#include <string>

#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/checks.h"
#include "lowering/kernels.h"
#include "lowering/reductions.h"
#include "lowering/size_arithmetic.h"

/// Reductions over runs of slices whose lengths are a tensor.
namespace exportguard::lowering {
namespace {

/// What changes nothing.
double neutral_element(LoweringContext& ctx, std::string_view name) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (name == "sum" || name == "mean") return 0;
  if (name == "prod") return 1;
  if (name == "max") return -kInfinity;
  if (name == "min") return kInfinity;
  ctx.fail("unknown reduction " + std::string(name));
}

Value* reduced(LoweringContext& ctx, std::string_view name, Value* x, std::int64_t axis) {
  const ReducedAxes over = {{axis}, false};
  if (name == "max") return extreme_value(ctx, x, Extreme::kLargest, over);
  if (name == "min") return extreme_value(ctx, x, Extreme::kSmallest, over);
  return name == "prod" ? product(ctx, x, over) : sum(ctx, x, over);
}

/// Where each run begins and ends on the axis: int64[…, runs].
struct Runs {
  Value* begins;
  Value* ends;
};

/// Unless the call is `unsafe`, lengths are those of runs, and together that of the axis.
Value* checked_lengths(LoweringContext& ctx) {
  Value* lengths = ctx.cast(ctx.input(2), DType::kInt64);
  if (ctx.flag(6)) return lengths;
  const auto last = static_cast<std::int64_t>(ctx.rank(lengths)) - 1;
  Value* total = ctx.reduce("ReduceSum", lengths, {last}, false);
  Value* is_whole = all_true(ctx, ctx.op("Equal", {total, ctx.dim_scalar(ctx.input(0), last)}), {});
  return stops_unless(ctx, ctx.op("And", {is_whole, none_below(ctx, lengths, 0)}), lengths);
}

Runs runs_of(LoweringContext& ctx) {
  if (ctx.has(4)) {
    Value* offsets = ctx.cast(ctx.input(4), DType::kInt64);
    offsets = stops_unless(ctx, never_falls(ctx, offsets), offsets);
    return {ctx.slice(offsets, -1, 0, -1), ctx.slice(offsets, -1, 1, kEnd)};
  }
  ctx.require(ctx.has(2), "the lengths or the offsets of the runs must be given");
  Value* lengths = checked_lengths(ctx);
  const auto last = static_cast<std::int64_t>(ctx.rank(lengths)) - 1;
  Value* ends = ctx.op("CumSum", {lengths, ctx.constant(last, DType::kInt64)});
  return {ctx.op("Sub", {ends, lengths}), ends};
}

/// Bool [batch…, runs, length, 1…]: which slices belong to which run.
Value* members(LoweringContext& ctx, const Runs& runs, const Size& length, std::size_t behind) {
  const auto rank = static_cast<std::int64_t>(ctx.rank(runs.ends));
  Value* positions = range(ctx, length);
  Value* is_begun = ctx.op("GreaterOrEqual", {positions, ctx.unsqueeze(runs.begins, {rank})});
  Value* is_open = ctx.op("Less", {positions, ctx.unsqueeze(runs.ends, {rank})});
  return ctx.unsqueeze(ctx.op("And", {is_begun, is_open}), counted(behind, rank + 1));
}

/// An axis that may be empty with an element that changes nothing: some runtimes stop at the greatest of nothing.
Value* with_one_more(LoweringContext& ctx, Value* x, std::int64_t axis, double neutral) {
  if (ctx.size(x, axis).constant().value_or(0) > 0) return x;
  std::vector<Size> sizes = ctx.sizes_of(x);
  sizes.at(static_cast<std::size_t>(axis)) = 1;
  return ctx.concat({x, ctx.filled(sizes, ctx.number_like(neutral, x))}, axis);
}

/// segment_reduce(data, reduce, *, lengths, indices, offsets, axis, unsafe, initial)
void lower_segment_reduce(LoweringContext& ctx) {
  Value* data = ctx.input(0);
  const std::string_view name = ctx.text(1);
  const double neutral = neutral_element(ctx, name);
  const Runs runs = runs_of(ctx);
  const auto axis = static_cast<std::int64_t>(ctx.rank(runs.ends)) - 1;
  const std::size_t behind = ctx.rank(data) - static_cast<std::size_t>(axis) - 1;

  Value* is_member = members(ctx, runs, size_of(ctx, data, axis), behind);
  Value* spread = ctx.where(is_member, ctx.unsqueeze(data, {axis}), ctx.number_like(neutral, data));
  spread = with_one_more(ctx, spread, axis + 1, neutral);
  Value* found = reduced(ctx, name, spread, axis + 1);
  Value* initial = ctx.has(7) ? ctx.scalar(7, found->dtype()) : nullptr;

  if (name == "mean") {
    Value* counts = ctx.cast(ctx.op("Sub", {runs.ends, runs.begins}), found->dtype());
    counts = ctx.unsqueeze(counts, counted(behind, axis + 1));
    if (initial) found = ctx.op("Add", {found, initial});
    Value* mean = ctx.op("Div", {found, counts});
    Value* is_empty = ctx.op("Equal", {counts, ctx.number_like(0, counts)});
    return ctx.result(initial ? ctx.where(is_empty, initial, mean) : mean);
  }

  if (initial == nullptr) return ctx.result(found);
  if (name == "sum") return ctx.result(ctx.op("Add", {found, initial}));
  if (name == "prod") return ctx.result(ctx.op("Mul", {found, initial}));
  const Extreme extreme = name == "max" ? Extreme::kLargest : Extreme::kSmallest;
  const std::vector<Size> sizes = ctx.sizes_of(found);
  Value* both = ctx.concat({ctx.unsqueeze(found, {0}), ctx.unsqueeze(ctx.expand(initial, sizes), {0})}, 0);
  ctx.result(extreme_value(ctx, both, extreme, {{0}, false}));
}

}  // namespace

void populate_segments(LoweringTable& table) { table.add("aten.segment_reduce.default", lower_segment_reduce); }

}  // namespace exportguard::lowering
