#include <algorithm>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/kernels.h"
#include "lowering/reductions.h"
#include "lowering/size_arithmetic.h"

// Differences of neighbours along an axis, integrals by trapezoids, derivatives by differences.

namespace exportguard::lowering {
namespace {

/// Neighbours along an axis: all elements but the first, all but the last.
struct Neighbours {
  Value* later;
  Value* earlier;
};

Neighbours neighbours(LoweringContext& ctx, Value* x, std::int64_t axis) {
  return {ctx.slice(x, axis, 1, kEnd), ctx.slice(x, axis, 0, -1)};
}

Value* slice_at(LoweringContext& ctx, Value* x, std::int64_t axis, std::int64_t position) {
  return ctx.slice(x, axis, position, position == -1 ? kEnd : position + 1);
}

Value* differences(LoweringContext& ctx, Value* x, std::int64_t axis) {
  const Neighbours n = neighbours(ctx, x, axis);
  return ctx.op(x->dtype() == DType::kBool ? "Xor" : "Sub", {n.later, n.earlier});
}

/// A vector laid along an axis of a tensor of that rank.
Value* along(LoweringContext& ctx, Value* vector, std::int64_t axis, std::size_t rank) {
  std::vector<std::int64_t> behind;
  for (std::int64_t other = axis + 1; other < static_cast<std::int64_t>(rank); ++other) behind.push_back(other - axis);
  return ctx.unsqueeze(vector, behind);
}

Value* operand(LoweringContext& ctx, std::size_t i) { return ctx.cast(ctx.input(i), ctx.output_dtype()); }

/// Of no differences torch gives the operand as it is, without what is to be put before and behind it.
void lower_diff(LoweringContext& ctx) {
  if (ctx.integer(1) == 0) return ctx.result(operand(ctx, 0));
  const std::int64_t axis = ctx.axis(2, ctx.rank(ctx.input(0)));
  std::vector<Value*> parts;
  for (const std::size_t argument : {3, 0, 4}) {
    if (ctx.has(argument)) parts.push_back(operand(ctx, argument));
  }
  Value* x = ctx.concat(parts, axis);
  for (std::int64_t order = 0; order < ctx.integer(1); ++order) x = differences(ctx, x, axis);
  ctx.result(x);
}

// ------------------------------------------------------------------------------------------------ trapezoids

/// Whether argument 1 holds the places of the elements, rather than the distance of neighbours.
bool has_places(LoweringContext& ctx) { return ctx.is_value(1) && !ctx.input(1)->type().is_scalar; }

/// The distances of neighbours, from their places. The axis counts from the front of whichever has more axes.
Value* widths(LoweringContext& ctx, std::int64_t axis) {
  Value* places = ctx.input(1);
  const auto rank = static_cast<std::int64_t>(ctx.rank(ctx.input(0)));
  const auto rank_of_places = static_cast<std::int64_t>(ctx.rank(places));
  if (rank_of_places == 1) return along(ctx, differences(ctx, places, 0), axis, static_cast<std::size_t>(rank));
  const std::int64_t missing = std::max<std::int64_t>(rank - rank_of_places, 0);
  ctx.require(axis >= missing, "the places have no such axis");
  return differences(ctx, places, axis - missing);
}

/// Both heights of each pair of neighbours added up, times their distance if places give it. Integers wrap round in
/// their own dtype, as in torch, before they are summed in int64.
Value* doubled_areas(LoweringContext& ctx, std::int64_t axis) {
  const Neighbours heights = neighbours(ctx, ctx.input(0), axis);
  Value* sums = same_dtype_op(ctx, "Add", {heights.later, heights.earlier});
  if (has_places(ctx)) {
    const DType dtype = ctx.promoted({0, 1});
    sums = same_dtype_op(ctx, "Mul", {ctx.cast(sums, dtype), ctx.cast(widths(ctx, axis), dtype)});
  }
  return is_floating(sums->dtype()) ? sums : ctx.cast(sums, DType::kInt64);
}

void finish_integral(LoweringContext& ctx, Value* doubled) {
  Value* half = ctx.constant(0.5, ctx.output_dtype());
  Value* scale = has_places(ctx) ? half : ctx.op("Mul", {ctx.scalar(1, ctx.output_dtype()), half});
  ctx.result(ctx.op("Mul", {ctx.cast(doubled, ctx.output_dtype()), scale}));
}

/// Of neighbours that are equally far apart: all heights but half of the first and of the last one, which are added in
/// their own dtype.
Value* even_integral(LoweringContext& ctx, std::int64_t axis) {
  Value* x = ctx.input(0);
  Value* all = sum(ctx, is_floating(x->dtype()) ? x : ctx.cast(x, DType::kInt64), {{axis}, false});
  Value* ends = same_dtype_op(ctx, "Add", {slice_at(ctx, x, axis, 0), slice_at(ctx, x, axis, -1)});
  const DType dtype = ctx.output_dtype();
  Value* half = ctx.op("Mul", {ctx.cast(ends, dtype), ctx.constant(0.5, dtype)});
  Value* inner = ctx.op("Sub", {ctx.cast(all, dtype), kernel_reduce(ctx, "ReduceSum", half, {axis}, false)});
  return ctx.op("Mul", {inner, ctx.scalar(1, dtype)});
}

void lower_trapezoid(LoweringContext& ctx) {
  const std::int64_t axis = ctx.axis(2, ctx.rank(ctx.input(0)));
  if (!has_places(ctx)) return ctx.result(even_integral(ctx, axis));
  finish_integral(ctx, kernel_reduce(ctx, "ReduceSum", doubled_areas(ctx, axis), {axis}, false));
}

void lower_cumulative_trapezoid(LoweringContext& ctx) {
  const std::int64_t axis = ctx.axis(2, ctx.rank(ctx.input(0)));
  Value* pieces = doubled_areas(ctx, axis);
  Value* summable = ctx.cast(pieces, kernel_dtype(ctx, "CumSum", pieces->dtype()));
  finish_integral(ctx, ctx.op("CumSum", {summable, ctx.constant(axis, DType::kInt64)}));
}

// ------------------------------------------------------------------------------------------------ derivatives

/// One axis of a tensor whose neighbours are `step` apart: a number, or one number for each pair of neighbours, laid
/// along the axis.
struct SpacedAxis {
  Value* x;
  std::int64_t axis;
  Value* step;

  Value* step_at(LoweringContext& ctx, std::int64_t position) const {
    return ctx.rank(step) == 0 ? step : slice_at(ctx, step, 0, position);
  }
};

Value* sum_of_products(LoweringContext& ctx, const std::vector<std::pair<Value*, Value*>>& factors) {
  Value* sum = nullptr;
  for (const auto& [a, b] : factors) {
    Value* product = ctx.op("Mul", {a, b});
    sum = sum ? ctx.op("Add", {sum, product}) : product;
  }
  return sum;
}

/// (later - earlier) / step. Integers wrap round in their own dtype, as in torch, before they are divided.
Value* slope(LoweringContext& ctx, Value* later, Value* earlier, Value* step) {
  Value* rise = same_dtype_op(ctx, "Sub", {later, earlier});
  return ctx.op("Div", {ctx.cast(rise, step->dtype()), step});
}

/// The derivative of the parabola through three neighbours at the middle one, `before` and `after` apart from it. The
/// middle one has no part in it where the distances are equal.
Value* inner_derivative(LoweringContext& ctx, const SpacedAxis& s) {
  if (ctx.rank(s.step) == 0) {
    Value* both = ctx.op("Mul", {s.step, ctx.number_like(2, s.step)});
    return slope(ctx, ctx.slice(s.x, s.axis, 2, kEnd), ctx.slice(s.x, s.axis, 0, -2), both);
  }

  Value* before = ctx.slice(s.step, 0, 0, -1);
  Value* after = ctx.slice(s.step, 0, 1, kEnd);
  Value* whole = ctx.op("Add", {before, after});
  Value* left = ctx.op("Neg", {ctx.op("Div", {after, ctx.op("Mul", {before, whole})})});
  Value* middle = ctx.op("Div", {ctx.op("Sub", {after, before}), ctx.op("Mul", {before, after})});
  Value* right = ctx.op("Div", {before, ctx.op("Mul", {after, whole})});
  Value* x = ctx.cast(s.x, s.step->dtype());
  return sum_of_products(ctx, {{left, ctx.slice(x, s.axis, 0, -2)},
                               {middle, ctx.slice(x, s.axis, 1, -1)},
                               {right, ctx.slice(x, s.axis, 2, kEnd)}});
}

/// At an end: the slope to its neighbour, or of the parabola through the last three. `inward` is 1 at the first element
/// and -1 at the last.
Value* end_derivative(LoweringContext& ctx, const SpacedAxis& s, std::int64_t inward, std::int64_t order) {
  const std::int64_t end = inward > 0 ? 0 : -1;
  Value* near = s.step_at(ctx, end);
  if (order == 1) {
    Value* outer = slice_at(ctx, s.x, s.axis, end);
    Value* inner = slice_at(ctx, s.x, s.axis, end + inward);
    return inward > 0 ? slope(ctx, inner, outer, near) : slope(ctx, outer, inner, near);
  }

  Value* x = ctx.cast(s.x, near->dtype());
  Value* sign = ctx.constant(inward, x->dtype());
  Value* x0 = slice_at(ctx, x, s.axis, end);
  Value* x1 = slice_at(ctx, x, s.axis, end + inward);
  Value* far = s.step_at(ctx, end + inward);
  Value* whole = ctx.op("Add", {near, far});
  Value* c0 = ctx.op("Neg", {ctx.op("Div", {ctx.op("Add", {near, whole}), ctx.op("Mul", {near, whole})})});
  Value* c1 = ctx.op("Div", {whole, ctx.op("Mul", {near, far})});
  Value* c2 = ctx.op("Neg", {ctx.op("Div", {near, ctx.op("Mul", {far, whole})})});
  Value* x2 = slice_at(ctx, x, s.axis, end + 2 * inward);
  return ctx.op("Mul", {sign, sum_of_products(ctx, {{c0, x0}, {c1, x1}, {c2, x2}})});
}

Value* derivative(LoweringContext& ctx, const SpacedAxis& s, std::int64_t order) {
  return ctx.concat({end_derivative(ctx, s, 1, order), inner_derivative(ctx, s), end_derivative(ctx, s, -1, order)},
                    s.axis);
}

/// The overloads of `gradient`: has it a spacing, and is that one tensor of places for each axis.
enum class Spacing { kNone, kNumbers, kPlaces };

Spacing spacing_of(LoweringContext& ctx) {
  const std::string& op = ctx.node().op();
  if (op == "gradient.array") return Spacing::kNone;
  return op.starts_with("gradient.tensor") ? Spacing::kPlaces : Spacing::kNumbers;
}

/// The distance of neighbours for the axis that is number `i` of those asked for.
Value* step_for(LoweringContext& ctx, Spacing spacing, std::size_t i, std::int64_t axis) {
  const DType dtype = ctx.output_dtype();
  if (spacing == Spacing::kPlaces) {
    Value* places = ctx.cast(ctx.inputs(1).at(i), dtype);
    return along(ctx, differences(ctx, places, 0), axis, ctx.rank(ctx.input(0)));
  }
  if (spacing == Spacing::kNone || !ctx.has(1)) return ctx.constant(1, dtype);
  const std::vector<double> numbers = ctx.numbers(1);
  return ctx.constant(numbers.size() == 1 ? numbers.front() : numbers.at(i), dtype);
}

void lower_gradient(LoweringContext& ctx) {
  const Spacing spacing = spacing_of(ctx);
  const std::size_t at = spacing == Spacing::kNone ? 1 : 2;
  Value* x = ctx.input(0);
  std::vector<std::int64_t> axes = ctx.has(at) ? ctx.integers(at) : ctx.axes(at, ctx.rank(x));
  std::vector<Value*> results;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t axis = axes[i] + (axes[i] < 0 ? static_cast<std::int64_t>(ctx.rank(x)) : 0);
    results.push_back(derivative(ctx, {x, axis, step_for(ctx, spacing, i, axis)}, ctx.integer(at + 1)));
  }
  ctx.results(results);
}

}  // namespace

void populate_differences(LoweringTable& table) {
  table.add("aten.diff.default", lower_diff);
  table.add({"aten.trapezoid.x", "aten.trapezoid.dx", "aten.trapz.x", "aten.trapz.dx"}, lower_trapezoid);
  table.add({"aten.cumulative_trapezoid.x", "aten.cumulative_trapezoid.dx"}, lower_cumulative_trapezoid);
  table.add(
      {"aten.gradient.scalarint", "aten.gradient.scalararray", "aten.gradient.array", "aten.gradient.scalarrayint",
       "aten.gradient.scalarrayarray", "aten.gradient.tensorarrayint", "aten.gradient.tensorarray"},
      lower_gradient);
}

}  // namespace exportguard::lowering
