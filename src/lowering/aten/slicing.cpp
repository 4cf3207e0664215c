#include <algorithm>
#include <cstdlib>
#include <limits>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/checks.h"
#include "lowering/complex_rules.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

/// Bound `i` of a slice; ONNX clamps bounds and counts negative ones from the end as torch does.
Size bound(LoweringContext& ctx, std::size_t i, std::int64_t fallback) {
  if (!ctx.has(i)) return Size(fallback);
  const auto number = ctx.find_integer(i);
  return number ? Size(*number) : Size(ctx.dim(i));
}

/// What a slice covers.
struct Bounds {
  std::int64_t axis;
  Size start;
  Size end;
  Size step;  ///< more than 0: torch takes no other

  bool covers_all() const { return start.number() == 0 && end.number() == kEnd && step.number() == 1; }
};

/// From the arguments dim, start, end and step, which begin at position `first`.
Bounds bounds(LoweringContext& ctx, const Value* x, std::size_t first) {
  return {ctx.axis(first, ctx.rank(x)), bound(ctx, first + 1, 0), bound(ctx, first + 2, kEnd),
          bound(ctx, first + 3, 1)};
}

void lower_slice(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const Bounds b = bounds(ctx, x, 1);
  ctx.result(b.covers_all() ? x : ctx.slice(x, b.axis, b.start, b.end, b.step));
}

void lower_select(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  ctx.result(ctx.gather(x, ctx.scalar(2, DType::kInt64), ctx.axis(1, ctx.rank(x))));
}

/// x[start : start + length]; the start is a position in the axis already.
Value* window(LoweringContext& ctx, Value* x, std::int64_t axis, const Size& start, const Size& length) {
  return ctx.slice(x, axis, start, add(ctx, start, length));
}

void lower_narrow(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const std::int64_t axis = ctx.axis(1, ctx.rank(x));
  const Size start = ctx.find_integer(2) ? Size(ctx.integer(2)) : Size(ctx.scalar_as_dim(ctx.input(2)));
  ctx.result(window(ctx, x, axis, from_start(ctx, start, size_of(ctx, x, axis)), ctx.sizes(3).front()));
}

// ------------------------------------------------------------------------------------------------ parts

/// The size of each part along the axis, as torch worked them out.
std::vector<Size> part_sizes(LoweringContext& ctx, std::int64_t axis) {
  std::vector<Size> sizes;
  for (std::size_t i = 0; i < ctx.node().output_count(); ++i) {
    const ir::Dim dim = ctx.output_type(i).shape.value().at(static_cast<std::size_t>(axis));
    sizes.push_back(dim.constant() ? Size(*dim.constant()) : Size(ctx.dim_value(dim)));
  }
  return sizes;
}

void split_along(LoweringContext& ctx, std::int64_t axis, const std::vector<Size>& sizes) {
  Value* x = ctx.input(0);
  if (sizes.size() == 1) return ctx.result(x);
  if (sizes.empty()) return ctx.results({});
  ctx.results(ctx.op_many("Split", {x, ctx.concat_sizes(sizes)}, sizes.size(), {{"axis", axis}}));
}

void lower_split(LoweringContext& ctx) {
  const std::int64_t axis = ctx.axis(2, ctx.rank(ctx.input(0)));
  split_along(ctx, axis, part_sizes(ctx, axis));
}

void lower_split_with_sizes(LoweringContext& ctx) {
  split_along(ctx, ctx.axis(2, ctx.rank(ctx.input(0))), ctx.sizes(1));
}

/// The parts between neighbouring positions. They need not be in order: a part is empty where they are not.
void split_at(LoweringContext& ctx, std::int64_t axis, const std::vector<Size>& positions) {
  Value* x = ctx.input(0);
  std::vector<Value*> parts;
  for (std::size_t i = 0; i <= positions.size(); ++i) {
    const Size start = i == 0 ? Size(0) : positions[i - 1];
    const Size end = i == positions.size() ? Size(kEnd) : positions[i];
    parts.push_back(ctx.slice(x, axis, start, end));
  }
  ctx.results(parts);
}

void lower_tensor_split_at(LoweringContext& ctx) { split_at(ctx, ctx.axis(2, ctx.rank(ctx.input(0))), ctx.sizes(1)); }

void lower_tensor_split_by_tensor(LoweringContext& ctx) {
  const std::int64_t axis = ctx.axis(2, ctx.rank(ctx.input(0)));
  Value* given = ctx.input(1);
  if (ctx.rank(given) == 0) return split_along(ctx, axis, part_sizes(ctx, axis));
  std::vector<Size> positions;
  for (std::int64_t i = 0; i + 1 < static_cast<std::int64_t>(ctx.node().output_count()); ++i) {
    positions.emplace_back(ctx.slice(given, 0, i, i + 1));
  }
  split_at(ctx, axis, positions);
}

/// hsplit, vsplit and dsplit name their axis: 1 (0 of a vector), 0 and 2.
std::int64_t named_axis(LoweringContext& ctx) {
  const char first = ctx.node().op().front();
  if (first == 'd') return 2;
  return first == 'h' && ctx.rank(ctx.input(0)) > 1 ? 1 : 0;
}

void lower_named_split(LoweringContext& ctx) {
  const std::int64_t axis = named_axis(ctx);
  split_along(ctx, axis, part_sizes(ctx, axis));
}

void lower_named_split_at(LoweringContext& ctx) { split_at(ctx, named_axis(ctx), ctx.sizes(1)); }

void lower_unbind(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const std::int64_t axis = ctx.axis(1, ctx.rank(x));
  std::vector<Value*> parts;
  for (std::size_t i = 0; i < ctx.node().output_count(); ++i) {
    const bool is_read = !ctx.node().output(i).is_unused();
    Value* index = is_read ? ctx.constant(static_cast<std::int64_t>(i), DType::kInt64) : nullptr;
    parts.push_back(is_read ? ctx.gather(x, index, axis) : nullptr);
  }
  ctx.results(parts);
}

// ------------------------------------------------------------------------------------------------ order

void lower_flip(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  std::vector<std::int64_t> axes = ctx.integers(1);
  if (axes.empty() || ctx.rank(x) == 0) return ctx.result(x);
  const std::vector<std::int64_t> last(axes.size(), -1);
  const std::vector<std::int64_t> before_first(axes.size(), std::numeric_limits<std::int64_t>::min());
  ctx.result(ctx.op("Slice", {x, ctx.ints(last), ctx.ints(before_first), ctx.ints(axes), ctx.ints(last)}));
}

Value* flipped(LoweringContext& ctx, Value* x, std::int64_t axis) {
  Value* made = ctx.slice(x, axis, -1, std::numeric_limits<std::int64_t>::min(), -1);
  made->set_type(x->type());
  return made;
}

void lower_fliplr(LoweringContext& ctx) { ctx.result(flipped(ctx, ctx.input(0), 1)); }

void lower_flipud(LoweringContext& ctx) { ctx.result(flipped(ctx, ctx.input(0), 0)); }

void lower_rot90(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const std::int64_t turns = ((ctx.integer(1) % 4) + 4) % 4;
  const std::vector<std::int64_t> axes = ctx.integers(2);
  if (turns == 1 || turns == 2) x = flipped(ctx, x, axes.at(1));
  if (turns == 2 || turns == 3) x = flipped(ctx, x, axes.at(0));
  ctx.result(turns % 2 == 1 ? ctx.swap_axes(x, axes.at(0), axes.at(1)) : x);
}

/// Element i of the result is element i - shift of the value, counted round the axis.
Value* rolled(LoweringContext& ctx, Value* x, const Size& shift, std::int64_t axis) {
  const Size size = size_of(ctx, x, axis);
  if (shift.number() == 0 || size.number() == 0) return x;
  Value* from = ctx.op("Sub", {range(ctx, size), as_dim(ctx, shift)});
  Value* index = ctx.op("Mod", {from, as_dim(ctx, maximum(ctx, size, 1))});  // a modulus of 0 has no meaning
  Value* made = ctx.gather(x, index, axis);
  made->set_type(x->type());
  return made;
}

void lower_roll(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const std::vector<Size> shifts = ctx.sizes(1);
  const std::vector<std::int64_t> axes = ctx.integers(2);
  if (ctx.rank(x) == 0) return ctx.result(x);
  if (axes.empty()) {
    Value* flat = ctx.reshape(x, {Size(-1)});
    return ctx.result(ctx.reshape_like_output(rolled(ctx, flat, shifts.at(0), 0)));
  }
  for (std::size_t i = 0; i < axes.size(); ++i) x = rolled(ctx, x, shifts.at(i), axes[i]);
  ctx.result(x);
}

// ------------------------------------------------------------------------------------------------ windows

/// Moves axis `from` behind the last axis of a value of that rank.
Value* moved_to_end(LoweringContext& ctx, Value* x, std::int64_t from, std::size_t rank) {
  std::vector<std::int64_t> permutation;
  for (std::int64_t axis = 0; axis < static_cast<std::int64_t>(rank); ++axis) {
    if (axis != from) permutation.push_back(axis);
  }
  permutation.push_back(from);
  return ctx.transpose(x, permutation);
}

void lower_unfold(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const std::size_t rank = ctx.rank(x);
  if (rank == 0) return ctx.result(ctx.reshape_like_output(x));
  const std::int64_t axis = ctx.axis(1, rank);
  const Size count = ctx.output_sizes().at(static_cast<std::size_t>(axis));
  Value* starts = ctx.op("Mul", {range(ctx, count), ctx.ints({ctx.integer(3)})});
  Value* index = ctx.op("Add", {ctx.unsqueeze(starts, {1}), range(ctx, ctx.integer(2))});
  ctx.result(moved_to_end(ctx, ctx.gather(x, index, axis), axis + 1, rank + 1));
}

// ------------------------------------------------------------------------------------------------ writes into slices

/// The least size of the axis at which the bounds lie within it.
std::int64_t least_size(const Bounds& b) {
  std::int64_t least = std::abs(b.start.number().value_or(0));
  const auto end = b.end.number();
  if (end && *end != kEnd) least = std::max(least, std::abs(*end));
  return least;
}

/// Whether a part of known size fits between bounds that reach beyond a shorter axis: `y[-3:]` of two rows has two.
Value* fits(LoweringContext& ctx, const Bounds& b, Value* x, std::int64_t part) {
  const std::int64_t least = least_size(b);
  const bool is_cut = part < least && (b.start.number() == 0 || b.end.number() == kEnd);
  Value* size = ctx.dim_scalar(x, b.axis);
  return is_cut ? ctx.op("Equal", {size, ctx.constant(part, DType::kInt64)})
                : ctx.op("GreaterOrEqual", {size, ctx.constant(least, DType::kInt64)});
}

/// Bounds with a check that a part of known size fits between them: at a shorter axis torch stops, and pieces that are
/// joined would make it longer. The common write to the first or last entry has no check, for it fails at size 0 alone.
Bounds checked(LoweringContext& ctx, const Bounds& b, Value* x, Value* part) {
  const auto size = ctx.size(part, b.axis).constant();
  if (least_size(b) < 2 || ctx.size(x, b.axis).constant() || !size) return b;
  Value* is_right = fits(ctx, b, x, *size);
  const auto behind = [&](std::int64_t number) { return Size(stops_unless(ctx, is_right, ctx.ints({number}))); };
  if (b.end.number() && *b.end.number() != kEnd) return {b.axis, b.start, behind(*b.end.number()), b.step};
  return {b.axis, behind(*b.start.number()), b.end, b.step};
}

/// The value with `part` in place of the elements from `start` to `end`.
Value* replaced(LoweringContext& ctx, const Bounds& bounds, Value* x, Value* part) {
  const Bounds b = checked(ctx, bounds, x, part);
  std::vector<Value*> parts;
  if (b.start.number() != 0) parts.push_back(ctx.slice(x, b.axis, 0, b.start));
  parts.push_back(part);
  if (b.end.number() != kEnd) parts.push_back(ctx.slice(x, b.axis, b.end, kEnd));
  return ctx.concat(parts, b.axis);
}

/// Whether the slice ends at or behind its start whatever the size: only then what is before and behind it are apart.
bool is_ordered(const Bounds& b) {
  if (b.start.number() == 0 || b.end.number() == kEnd) return true;
  const auto start = b.start.number();
  const auto end = b.end.number();
  return start && end && (*start < 0) == (*end < 0) && *start <= *end;
}

void lower_slice_scatter(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  Value* part = ctx.cast(ctx.input(1), x->dtype());
  const Bounds b = bounds(ctx, x, 2);
  if (b.covers_all()) return ctx.result(part);
  if (b.step.number() == 1 && is_ordered(b)) return ctx.result(replaced(ctx, b, x, part));
  Value* positions = ctx.slice(range(ctx, size_of(ctx, x, b.axis)), 0, b.start, b.end, b.step);
  Value* index = ctx.op("Expand", {ctx.unsqueeze(positions, other_axes(ctx.rank(x), b.axis)), ctx.shape_of(part)});
  ctx.result(ctx.op("ScatterElements", {x, index, part}, {{"axis", b.axis}}));
}

void lower_select_scatter(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const std::int64_t axis = ctx.axis(2, ctx.rank(x));
  Value* part = ctx.unsqueeze(ctx.cast(ctx.input(1), x->dtype()), {axis});
  const Size index = ctx.sizes(3).front();
  const bool counts_from_end = index.number().value_or(0) < 0 && !ctx.size(x, axis).constant();
  if (counts_from_end) {
    const std::int64_t behind = *index.number() + 1;
    return ctx.result(replaced(ctx, {axis, index, behind == 0 ? Size(kEnd) : Size(behind), 1}, x, part));
  }
  const Size start = from_start(ctx, index, size_of(ctx, x, axis));
  const Size end = add(ctx, start, 1);
  const bool is_last = end.number() && end.number() == ctx.size(x, axis).constant();
  ctx.result(replaced(ctx, {axis, start, is_last ? Size(kEnd) : end, 1}, x, part));
}

}  // namespace

void populate_slicing(LoweringTable& table) {
  table.add({"aten.slice.Tensor", "aten.slice_copy.Tensor"}, lower_slice);
  table.add({"aten.select.int", "aten.select_copy.int"}, lower_select);
  table.add({"aten.narrow.default", "aten.narrow.Tensor", "aten.narrow_copy.default"}, lower_narrow);
  table.add({"aten.split.Tensor", "aten.split_copy.Tensor", "aten.unsafe_split.Tensor", "aten.chunk.default",
             "aten.unsafe_chunk.default", "aten.tensor_split.sections"},
            lower_split);
  table.add({"aten.split.sizes", "aten.split_with_sizes.default", "aten.split_with_sizes_copy.default",
             "aten.unsafe_split_with_sizes.default"},
            lower_split_with_sizes);
  table.add("aten.tensor_split.indices", lower_tensor_split_at);
  table.add("aten.tensor_split.tensor_indices_or_sections", lower_tensor_split_by_tensor);
  table.add({"aten.hsplit.int", "aten.vsplit.int", "aten.dsplit.int"}, lower_named_split);
  table.add({"aten.hsplit.array", "aten.vsplit.array", "aten.dsplit.array"}, lower_named_split_at);
  table.add({"aten.unbind.int", "aten.unbind_copy.int"}, lower_unbind);

  table.add("aten.flip.default", lower_flip);
  table.add("aten.fliplr.default", lower_fliplr);
  table.add("aten.flipud.default", lower_flipud);
  table.add("aten.rot90.default", lower_rot90);
  table.add("aten.roll.default", lower_roll);
  table.add({"aten.unfold.default", "aten.unfold_copy.default"}, lower_unfold);

  table.add("aten.slice_scatter.default", lower_slice_scatter);
  table.add("aten.select_scatter.default", lower_select_scatter);

  table.add_complex(
      {"aten.select.int", "aten.slice.Tensor", "aten.flip.default", "aten.roll.default", "aten.split.Tensor",
       "aten.split_with_sizes.default", "aten.chunk.default", "aten.unbind.int", "aten.narrow.default",
       "aten.slice_scatter.default", "aten.select_scatter.default", "aten.unfold.default", "aten.unsafe_split.Tensor",
       "aten.tensor_split.sections", "aten.rot90.default", "aten.fliplr.default"},
      separate_each);
}

}  // namespace exportguard::lowering
