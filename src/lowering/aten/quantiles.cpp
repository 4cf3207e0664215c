#include <limits>
#include <optional>
#include <string>

#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/kernels.h"
#include "lowering/ranking.h"
#include "lowering/reductions.h"
#include "lowering/size_arithmetic.h"

/// What stands at a part of the way through the elements in ascending order, along an axis of any length.
namespace exportguard::lowering {
namespace {

/// quantile(self, q, dim, keepdim, interpolation): of all elements without a `dim`.
struct Quantiles {
  Value* x;                          ///< its last axis is the one that the quantiles are taken along
  Value* parts;                      ///< a vector
  std::optional<std::int64_t> axis;  ///< where that axis was; none: all elements
  bool are_many;                     ///< a vector was asked for: the first axis of the result
  bool keepdim;
  bool skips_nan;
};

Quantiles quantiles_of(LoweringContext& ctx, bool skips_nan) {
  Value* x = ctx.input(0);
  Value* parts = ctx.scalar(1, x->dtype());
  Quantiles wanted = {x, ctx.reshape(parts, {-1}), std::nullopt, ctx.rank(parts) == 1, ctx.flag(3), skips_nan};
  const std::size_t rank = ctx.rank(x);
  if (ctx.has(2) && rank > 0) {
    wanted.axis = ctx.axis(2, rank);
    std::vector<std::int64_t> order = other_axes(rank, *wanted.axis);
    order.push_back(*wanted.axis);
    wanted.x = ctx.transpose(x, order);
  } else {
    wanted.x = ctx.reshape(x, {-1});
  }
  return wanted;
}

/// The places, in floats of the tensor's dtype, among `count` elements: [..., parts].
Value* places_of(LoweringContext& ctx, const Quantiles& wanted, Value* count) {
  Value* last = ctx.cast(ctx.op("Sub", {count, ctx.constant(1, DType::kInt64)}), wanted.x->dtype());
  return ctx.op("Mul", {wanted.parts, ctx.op("Max", {last, ctx.number_like(0, last)})});
}

Value* elements_at(LoweringContext& ctx, Value* sorted, Value* places) {
  return ctx.op("GatherElements", {sorted, ctx.cast(places, DType::kInt64)}, {{"axis", -1}});
}

/// Between the elements on both sides of a place.
Value* interpolated(LoweringContext& ctx, Value* sorted, Value* places, std::string_view interpolation) {
  const auto at = [&](std::string_view rounding) { return elements_at(ctx, sorted, ctx.op(rounding, {places})); };
  if (interpolation == "lower") return at("Floor");
  if (interpolation == "higher") return at("Ceil");
  if (interpolation == "nearest") return at("Round");
  Value* below = at("Floor");
  Value* above = at("Ceil");
  Value* weight =
      interpolation == "midpoint" ? ctx.number_like(0.5, places) : ctx.op("Sub", {places, ctx.op("Floor", {places})});
  Value* gap = ctx.op("Sub", {above, below});
  // From the nearer end, as torch does.
  Value* from_below = ctx.op("Add", {below, ctx.op("Mul", {weight, gap})});
  Value* from_above = ctx.op("Sub", {above, ctx.op("Mul", {gap, ctx.op("Sub", {ctx.number_like(1, weight), weight})})});
  return ctx.where(ctx.op("Less", {weight, ctx.number_like(0.5, weight)}), from_below, from_above);
}

/// [..., elements] → [..., parts]
Value* found(LoweringContext& ctx, const Quantiles& wanted, std::string_view interpolation) {
  const auto axis = static_cast<std::int64_t>(ctx.rank(wanted.x)) - 1;
  Value* is_number = ctx.op("Equal", {wanted.x, wanted.x});
  Value* numbers = ctx.reduce("ReduceSum", ctx.cast(is_number, DType::kInt64), {axis}, true);
  Value* all = as_dim(ctx, size_of(ctx, wanted.x, axis));
  Value* count = wanted.skips_nan ? numbers : all;
  std::vector<Size> sizes = ctx.sizes_of(wanted.x);
  sizes.back() = size_of(ctx, wanted.parts, 0);
  Value* places = ctx.expand(places_of(ctx, wanted, count), sizes);
  Value* value = interpolated(ctx, fully_ranked(ctx, wanted.x, {axis, false}).values, places, interpolation);
  Value* is_none =
      wanted.skips_nan ? ctx.op("Equal", {numbers, ctx.constant(0, DType::kInt64)}) : ctx.op("Less", {numbers, all});
  return ctx.where(is_none, ctx.number_like(std::numeric_limits<double>::quiet_NaN(), value), value);
}

/// The parts become the first axis, or none; the axis of the elements stays with size 1 where that was asked for.
Value* arranged(LoweringContext& ctx, const Quantiles& wanted, Value* value) {
  const std::size_t rank = ctx.rank(value);
  std::vector<std::int64_t> order = {static_cast<std::int64_t>(rank) - 1};
  for (std::size_t i = 0; i + 1 < rank; ++i) order.push_back(static_cast<std::int64_t>(i));
  value = ctx.transpose(value, order);
  std::vector<std::int64_t> kept;
  const std::size_t all = wanted.axis ? rank : ctx.rank(ctx.input(0));
  for (std::size_t i = 0; wanted.keepdim && i < all; ++i) {
    const auto axis = static_cast<std::int64_t>(i);
    if (!wanted.axis || axis == *wanted.axis) kept.push_back(axis + 1);
  }
  if (!kept.empty()) value = ctx.unsqueeze(value, kept);
  return wanted.are_many ? value : ctx.squeeze(value, {0});
}

void lower_quantiles(LoweringContext& ctx, bool skips_nan) {
  const Quantiles wanted = quantiles_of(ctx, skips_nan);
  const std::string_view interpolation = ctx.has(4) ? ctx.text(4) : "linear";
  ctx.result(arranged(ctx, wanted, found(ctx, wanted, interpolation)));
}

void lower_quantile(LoweringContext& ctx) { lower_quantiles(ctx, false); }
void lower_nanquantile(LoweringContext& ctx) { lower_quantiles(ctx, true); }

}  // namespace

void populate_quantiles(LoweringTable& table) {
  table.add({"aten.quantile.default", "aten.quantile.scalar"}, lower_quantile);
  table.add({"aten.nanquantile.default", "aten.nanquantile.scalar"}, lower_nanquantile);
}

}  // namespace exportguard::lowering
