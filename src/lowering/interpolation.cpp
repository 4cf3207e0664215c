#include "lowering/interpolation.h"

#include <ATen/ops/tensor.h>

#include <cmath>
#include <vector>

#include "lowering/axes.h"
#include "lowering/size_arithmetic.h"
#include "lowering/wide_arithmetic.h"

// The formulas are those of aten/src/ATen/native/UpSample.h and cpu/UpSampleKernel.cpp, the same in torch 2.11 to 2.13.
namespace exportguard::lowering {
namespace {

using namespace wide;

/// What the elements of the result are sums of.
struct Taps {
  Value* positions;             ///< int64[to, taps], all within the axis
  Value* weights;               ///< float64[to, taps]
  Value* takes_part = nullptr;  ///< bool[to, taps]; null: all do
};

Value* as_number(LoweringContext& ctx, const Size& size) { return ctx.cast(as_scalar(ctx, size), kWide); }

/// How far two neighbours of the result lie apart on the operand's axis. But for plain cubic kernels of floats torch
/// leaves an axis whose size stays as it is, whatever factor is given.
Value* step_of(LoweringContext& ctx, const Size& from, const InterpolatedAxis& axis,
               const InterpolationOptions& options) {
  if (!options.aligns_corners) {
    if (!axis.factor || *axis.factor <= 0) return quotient(ctx, as_number(ctx, from), as_number(ctx, axis.to));
    Value* step = number(ctx, 1 / *axis.factor);
    if (options.kernel == Kernel::kCubic && !options.is_antialiased && !options.is_of_bytes) return step;
    return ctx.where(ctx.op("Equal", {as_scalar(ctx, from), as_scalar(ctx, axis.to)}), number(ctx, 1), step);
  }
  Value* last = plus(ctx, as_number(ctx, axis.to), -1);
  Value* is_single = ctx.op("LessOrEqual", {last, number(ctx, 0)});
  Value* safe = ctx.where(is_single, number(ctx, 1), last);
  return ctx.where(is_single, number(ctx, 0), quotient(ctx, plus(ctx, as_number(ctx, from), -1), safe));
}

Value* within(LoweringContext& ctx, Value* positions, const Size& size) {
  Value* last = ctx.op("Sub", {as_scalar(ctx, size), ctx.constant(1, DType::kInt64)});
  return ctx.op("Max", {ctx.op("Min", {positions, last}), ctx.constant(0, DType::kInt64)});
}

/// ((a + 2) x - (a + 3)) x² + 1, for a distance of at most 1.
Value* cubic_near(LoweringContext& ctx, Value* x, double a) {
  Value* inner = plus(ctx, times(ctx, x, a + 2), -(a + 3));
  return plus(ctx, product(ctx, product(ctx, inner, x), x), 1);
}

/// ((x - 5) x + 8) x a - 4 a, for one between 1 and 2.
Value* cubic_far(LoweringContext& ctx, Value* x, double a) {
  Value* inner = plus(ctx, product(ctx, plus(ctx, x, -5), x), 8);
  return times(ctx, plus(ctx, product(ctx, inner, x), -4), a);
}

/// float64[to, 1]
Value* indices(LoweringContext& ctx, const Size& to) { return ctx.unsqueeze(ctx.cast(range(ctx, to), kWide), {1}); }

Taps plain_taps(LoweringContext& ctx, const Size& from, const InterpolatedAxis& axis,
                const InterpolationOptions& options) {
  Value* step = step_of(ctx, from, axis, options);
  Value* place = nullptr;
  if (options.aligns_corners) {
    place = product(ctx, indices(ctx, axis.to), step);
  } else {
    place = plus(ctx, product(ctx, plus(ctx, indices(ctx, axis.to), 0.5), step), -0.5);
    if (options.kernel == Kernel::kLinear) place = ctx.op("Max", {place, number(ctx, 0)});
  }

  Value* below = ctx.op("Floor", {place});
  Value* first = ctx.cast(below, DType::kInt64);
  if (options.kernel == Kernel::kLinear) {
    first = within(ctx, first, from);
    Value* part = ctx.op("Clip", {difference(ctx, place, ctx.cast(first, kWide)), number(ctx, 0), number(ctx, 1)});
    Value* positions = within(ctx, ctx.op("Add", {first, ctx.ints({0, 1})}), from);
    return {positions, ctx.concat({difference(ctx, number(ctx, 1), part), part}, 1)};
  }

  constexpr double kShape = -0.75;
  Value* part = difference(ctx, place, below);
  Value* rest = difference(ctx, number(ctx, 1), part);
  Value* weights = ctx.concat({cubic_far(ctx, plus(ctx, part, 1), kShape), cubic_near(ctx, part, kShape),
                               cubic_near(ctx, rest, kShape), cubic_far(ctx, plus(ctx, rest, 1), kShape)},
                              1);
  return {within(ctx, ctx.op("Add", {first, ctx.ints({-1, 0, 1, 2})}), from), weights};
}

/// The kernel at a distance; zero beyond its reach.
Value* kernel_at(LoweringContext& ctx, Value* distance, Kernel kernel) {
  Value* x = ctx.op("Abs", {distance});
  if (kernel == Kernel::kLinear) return ctx.op("Max", {difference(ctx, number(ctx, 1), x), number(ctx, 0)});
  constexpr double kShape = -0.5;
  Value* far = ctx.where(is_below(ctx, x, 2), cubic_far(ctx, x, kShape), number(ctx, 0));
  return ctx.where(is_below(ctx, x, 1), cubic_near(ctx, x, kShape), far);
}

/// Where the result is smaller, the kernel is as wide as the elements that it stands for.
Taps antialiased_taps(LoweringContext& ctx, const Size& from, const InterpolatedAxis& axis,
                      const InterpolationOptions& options) {
  const double reach = options.kernel == Kernel::kLinear ? 1 : 2;
  Value* step = step_of(ctx, from, axis, options);
  Value* width = ctx.op("Max", {step, number(ctx, 1)});
  Value* support = times(ctx, width, reach);
  Value* center = product(ctx, plus(ctx, indices(ctx, axis.to), 0.5), step);
  const auto whole = [&](Value* x) { return ctx.cast(plus(ctx, x, 0.5), DType::kInt64); };  // rounds to zero
  Value* zero = ctx.constant(0, DType::kInt64);
  Value* start = ctx.op("Max", {whole(difference(ctx, center, support)), zero});
  Value* end = ctx.op("Min", {whole(sum(ctx, center, support)), as_scalar(ctx, from)});

  Value* most = ctx.cast(plus(ctx, times(ctx, ctx.op("Ceil", {support}), 2), 1), DType::kInt64);
  Value* positions = ctx.op("Add", {start, range(ctx, ctx.scalar_as_dim(most))});
  Value* distance = plus(ctx, difference(ctx, ctx.cast(positions, kWide), center), 0.5);
  Value* weights = kernel_at(ctx, quotient(ctx, distance, width), options.kernel);
  Value* takes_part = ctx.op("Less", {positions, end});
  weights = ctx.where(takes_part, weights, number(ctx, 0));
  Value* total = ctx.reduce("ReduceSum", weights, {1}, true);
  return {within(ctx, positions, from), quotient(ctx, weights, total), takes_part};
}

// ------------------------------------------------------------------------------------------------ bytes

/// At the ends of an axis several taps are one element: the first of them gets the weights of all.
Value* merged_weights(LoweringContext& ctx, const Taps& taps) {
  Value* is_same = ctx.op("Equal", {ctx.unsqueeze(taps.positions, {2}), ctx.unsqueeze(taps.positions, {1})});
  Value* shared = ctx.where(is_same, ctx.unsqueeze(taps.weights, {1}), number(ctx, 0));
  Value* ahead = ctx.op("Sub", {ctx.slice(taps.positions, 1, 0, 1), ctx.ints({1})});
  Value* before = ctx.concat({ahead, ctx.slice(taps.positions, 1, 0, -1)}, 1);
  Value* is_first = ctx.op("Greater", {taps.positions, before});
  return ctx.where(is_first, ctx.reduce("ReduceSum", shared, {2}, false), number(ctx, 0));
}

/// What 1 is in torch's fixed point: the greatest power of two, up to 2²², with which every weight is below 2¹⁵.
Value* unit_of(LoweringContext& ctx, Value* weights) {
  constexpr int kMostDigits = 22;
  std::vector<double> powers;
  for (int digits = 0; digits <= kMostDigits; ++digits) powers.push_back(std::ldexp(1, digits));
  Value* units = ctx.constant(ir::Tensor(at::tensor(powers)));

  Value* greatest = ctx.reduce("ReduceMax", weights, {0, 1}, false);
  Value* whole = ctx.op("Floor", {plus(ctx, product(ctx, ctx.slice(units, 0, 1, kEnd), greatest), 0.5)});
  Value* fits = ctx.cast(is_below(ctx, whole, 1 << 15), DType::kInt64);
  return ctx.gather(units, ctx.reduce("ReduceSum", fits, {0}, false), 0);
}

/// Rounded away from zero at a half.
Value* whole_weights(LoweringContext& ctx, Value* weights, Value* unit) {
  Value* size = ctx.op("Floor", {plus(ctx, product(ctx, ctx.op("Abs", {weights}), unit), 0.5)});
  return product(ctx, ctx.op("Sign", {weights}), size);
}

Value* rounded_byte(LoweringContext& ctx, Value* total, Value* unit) {
  Value* whole = ctx.op("Floor", {quotient(ctx, sum(ctx, total, times(ctx, unit, 0.5)), unit)});
  return ctx.op("Clip", {whole, number(ctx, 0), number(ctx, 255)});
}

Value* weighted_sum(LoweringContext& ctx, Value* x, const Taps& taps, std::int64_t axis) {
  Value* gathered = ctx.gather(x, taps.positions, axis);  // [..., to, taps, ...]
  std::vector<std::int64_t> behind;
  for (auto i = axis + 2; i < static_cast<std::int64_t>(ctx.rank(gathered)); ++i) behind.push_back(i - axis);
  Value* parts = product(ctx, gathered, ctx.unsqueeze(taps.weights, behind));
  // The NaN or infinity of an element that takes no part is not the result's.
  if (taps.takes_part) parts = ctx.where(ctx.unsqueeze(taps.takes_part, behind), parts, number(ctx, 0));
  return ctx.reduce("ReduceSum", parts, {axis + 1}, false);
}

/// Pictures of bytes are summed with whole weights, and every axis gives bytes again.
Value* interpolated_bytes(LoweringContext& ctx, Value* x, Taps taps, std::int64_t axis) {
  if (taps.takes_part == nullptr) taps.weights = merged_weights(ctx, taps);
  Value* unit = unit_of(ctx, taps.weights);
  taps.weights = whole_weights(ctx, taps.weights, unit);
  return rounded_byte(ctx, weighted_sum(ctx, x, taps, axis), unit);
}

}  // namespace

Value* interpolated(LoweringContext& ctx, Value* x, const InterpolatedAxis& axis, const InterpolationOptions& options) {
  const Size from = size_of(ctx, x, axis.axis);
  const auto taps_of = options.is_antialiased ? antialiased_taps : plain_taps;
  const Taps taps = taps_of(ctx, from, axis, options);
  return options.is_of_bytes ? interpolated_bytes(ctx, x, taps, axis.axis) : weighted_sum(ctx, x, taps, axis.axis);
}

}  // namespace exportguard::lowering
