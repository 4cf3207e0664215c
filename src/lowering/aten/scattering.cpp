#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/complex_rules.h"
#include "lowering/dtype_limits.h"
#include "lowering/elementwise.h"
#include "lowering/kernels.h"
#include "lowering/scatter.h"
#include "lowering/size_arithmetic.h"
#include "lowering/vectors.h"

namespace exportguard::lowering {
namespace {

/// Where a scatter writes: `index` has the shape of the updates.
struct Target {
  Value* data;
  std::int64_t axis;
  Value* index;

  Value* write(LoweringContext& ctx, Value* into, Value* updates, Reduction reduction) const {
    return scatter_elements(ctx, into, axis, index, updates, reduction);
  }
};

Target target(LoweringContext& ctx) { return {ctx.input(0), ctx.axis(1, ctx.rank(ctx.input(0))), ctx.input(2)}; }

/// The source cut to the shape of the index: torch lets it be larger, ONNX does not.
Value* cut_source(LoweringContext& ctx, Value* source, Value* index) {
  if (ctx.rank(source) != ctx.rank(index)) return ctx.reshape(source, ctx.sizes_of(index));
  if (ctx.rank(source) == 0 || ctx.shape(source) == ctx.shape(index)) return source;
  const std::vector<std::int64_t> starts(ctx.rank(source), 0);
  Value* made = ctx.op("Slice", {source, ctx.ints(starts), ctx.shape_of(index)});
  made->set_type(ir::Type::tensor(source->dtype(), ctx.shape(index)));
  return made;
}

Value* filled_like(LoweringContext& ctx, Value* shape, Value* scalar) {
  return ctx.filled(ctx.sizes_of(shape), scalar);
}

// ------------------------------------------------------------------------------------------------ scatter

void lower_scatter_source(LoweringContext& ctx) {
  const Target t = target(ctx);
  ctx.result(t.write(ctx, t.data, cut_source(ctx, ctx.input(3), t.index), Reduction::kNone));
}

void lower_scatter_value(LoweringContext& ctx) {
  const Target t = target(ctx);
  Value* updates = filled_like(ctx, t.index, ctx.scalar(3, t.data->dtype()));
  ctx.result(t.write(ctx, t.data, updates, Reduction::kNone));
}

void lower_scatter_named(LoweringContext& ctx) {
  const Target t = target(ctx);
  ctx.result(t.write(ctx, t.data, cut_source(ctx, ctx.input(3), t.index), reduction_named(ctx, ctx.text(4))));
}

void lower_scatter_value_named(LoweringContext& ctx) {
  const Target t = target(ctx);
  Value* updates = filled_like(ctx, t.index, ctx.scalar(3, t.data->dtype()));
  ctx.result(t.write(ctx, t.data, updates, reduction_named(ctx, ctx.text(4))));
}

void lower_scatter_add(LoweringContext& ctx) {
  const Target t = target(ctx);
  ctx.result(t.write(ctx, t.data, cut_source(ctx, ctx.input(3), t.index), Reduction::kAdd));
}

// ------------------------------------------------------------------------------------------------ reductions

/// What changes nothing under the reduction.
Value* neutral(LoweringContext& ctx, Reduction reduction, DType dtype) {
  switch (reduction) {
    case Reduction::kMultiply:
      return ctx.constant(1, dtype);
    case Reduction::kMaximum:
      return lowest(ctx, dtype);
    case Reduction::kMinimum:
      return highest(ctx, dtype);
    default:
      return ctx.constant(0, dtype);
  }
}

/// The sum divided by how many summands met; where none did it stays.
Value* mean_of(LoweringContext& ctx, const Target& t, Value* sum, bool includes_self) {
  const DType dtype = t.data->dtype();
  Value* start = filled_like(ctx, t.data, ctx.constant(includes_self ? 1 : 0, DType::kInt64));
  Value* ones = filled_like(ctx, t.index, ctx.constant(1, DType::kInt64));
  Value* counts = t.write(ctx, start, ones, Reduction::kAdd);
  Value* divisor = ctx.cast(ctx.op("Max", {counts, ctx.constant(1, DType::kInt64)}), dtype);
  return is_floating(dtype) ? ctx.op("Div", {sum, divisor}) : floor_quotient(ctx, sum, divisor);
}

/// `scatter_reduce` with a target already laid out element by element.
Value* reduced(LoweringContext& ctx, const Target& t, Value* updates, std::string_view name, bool includes_self) {
  const Reduction reduction = reduction_named(ctx, name);
  Value* start = t.data;
  if (!includes_self) {
    Value* neutrals = filled_like(ctx, t.index, neutral(ctx, reduction, start->dtype()));
    start = t.write(ctx, start, neutrals, Reduction::kNone);
  }
  Value* made = t.write(ctx, start, updates, reduction);
  return name == "mean" ? mean_of(ctx, t, made, includes_self) : made;
}

void lower_scatter_reduce(LoweringContext& ctx) {
  const Target t = target(ctx);
  ctx.result(reduced(ctx, t, cut_source(ctx, ctx.input(3), t.index), ctx.text(4), ctx.flag(5)));
}

// ------------------------------------------------------------------------------------------------ slices

/// Data of rank 0 counts as a vector of one, in `index_add` and its like.
struct Slices {
  Value* data;
  std::int64_t axis;
  Value* index;  ///< a vector
};

Slices slices(LoweringContext& ctx) {
  Value* data = ctx.input(0);
  const std::int64_t axis = ctx.axis(1, ctx.rank(data));
  return {as_vector(ctx, data), axis, as_vector(ctx, ctx.input(2))};
}

/// The sizes of what `index` picks out of the data.
std::vector<Size> picked_sizes(LoweringContext& ctx, const Slices& s) {
  std::vector<Size> sizes = ctx.sizes_of(s.data);
  sizes[static_cast<std::size_t>(s.axis)] = size_of(ctx, s.index, 0);
  return sizes;
}

void finish(LoweringContext& ctx, Value* made) {
  ctx.result(ctx.rank(ctx.input(0)) == 0 ? ctx.squeeze(made, {0}) : made);
}

Value* picked_source(LoweringContext& ctx, const Slices& s) {
  Value* source = ctx.cast(ctx.input(3), s.data->dtype());
  return ctx.rank(source) == ctx.rank(s.data) ? source : ctx.reshape(source, picked_sizes(ctx, s));
}

void lower_index_add(LoweringContext& ctx) {
  const Slices s = slices(ctx);
  Value* source = picked_source(ctx, s);
  if (ctx.find_number(4) != 1.0) source = same_dtype_op(ctx, "Mul", {source, ctx.scalar(4, s.data->dtype())});
  finish(ctx, scatter_slices(ctx, s.data, s.axis, s.index, source, Reduction::kAdd));
}

void lower_index_copy(LoweringContext& ctx) {
  const Slices s = slices(ctx);
  finish(ctx, scatter_slices(ctx, s.data, s.axis, s.index, picked_source(ctx, s), Reduction::kNone));
}

void lower_index_fill(LoweringContext& ctx) {
  const Slices s = slices(ctx);
  Value* updates = ctx.filled(picked_sizes(ctx, s), ctx.scalar(3, s.data->dtype()));
  finish(ctx, scatter_slices(ctx, s.data, s.axis, s.index, updates, Reduction::kNone));
}

void lower_index_reduce(LoweringContext& ctx) {
  const Slices s = slices(ctx);
  Value* spread = ctx.expand(ctx.unsqueeze(s.index, other_axes(ctx.rank(s.data), s.axis)), picked_sizes(ctx, s));
  finish(ctx, reduced(ctx, {s.data, s.axis, spread}, picked_source(ctx, s), ctx.text(4), ctx.flag(5)));
}

}  // namespace

void populate_scattering(LoweringTable& table) {
  table.add("aten.scatter.src", lower_scatter_source);
  table.add("aten.scatter.value", lower_scatter_value);
  table.add("aten.scatter.reduce", lower_scatter_named);
  table.add("aten.scatter.value_reduce", lower_scatter_value_named);
  table.add("aten.scatter_add.default", lower_scatter_add);
  table.add("aten.scatter_reduce.two", lower_scatter_reduce);
  table.add("aten.index_add.default", lower_index_add);
  table.add("aten.index_copy.default", lower_index_copy);
  table.add({"aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor"}, lower_index_fill);
  table.add("aten.index_reduce.default", lower_index_reduce);
  table.add_complex(
      {"aten.scatter.src", "aten.scatter_add.default", "aten.index_copy.default", "aten.index_add.default"},
      separate_each);
}

}  // namespace exportguard::lowering
