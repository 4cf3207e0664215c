#include <algorithm>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/checks.h"
#include "lowering/complex_rules.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

bool holds_value(const std::vector<Size>& sizes) {
  return std::ranges::any_of(sizes, [](const Size& size) { return size.value() != nullptr; });
}

/// The sizes asked for. A `-1` beside sizes that are only known at run time becomes what torch worked out: ONNX cannot
/// infer it when one of the others is 0.
std::vector<Size> asked_sizes(LoweringContext& ctx, std::size_t argument) {
  std::vector<Size> sizes = ctx.sizes(argument);
  const auto& shape = ctx.output_type().shape;
  if (!holds_value(sizes) || !shape || shape->size() != sizes.size()) return sizes;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].number() != -1) continue;
    if (Value* known = ctx.find_dim_value((*shape)[i])) sizes[i] = Size(known);
  }
  return sizes;
}

void lower_view(LoweringContext& ctx) { ctx.result(ctx.reshape(ctx.input(0), asked_sizes(ctx, 1))); }

void lower_reshape_as(LoweringContext& ctx) { ctx.result(ctx.reshape(ctx.input(0), ctx.sizes_of(ctx.input(1)))); }

void lower_to_output_shape(LoweringContext& ctx) { ctx.result(ctx.reshape_like_output(ctx.input(0))); }

void lower_each_to_output_shape(LoweringContext& ctx) {
  std::vector<Value*> results = ctx.inputs(0);
  for (std::size_t i = 0; i < results.size(); ++i) results[i] = ctx.reshape_like_output(results[i], i);
  ctx.results(results);
}

/// Bits are read as another dtype. ONNX converts between signed and unsigned integers of one width bit by bit.
void lower_view_dtype(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const DType from = x->dtype();
  const DType to = ctx.dtype(1);
  const bool is_bool_to_byte = from == DType::kBool && bit_width(to) == 8 && is_integral(to);
  const bool is_same_width = is_integral(from) && is_integral(to) && bit_width(from) == bit_width(to);
  if (from != to && !is_bool_to_byte && !is_same_width) {
    ctx.fail("ONNX cannot read the bits of " + std::string(name(from)) + " as " + std::string(name(to)));
  }
  ctx.result(ctx.cast(x, to));
}

// ------------------------------------------------------------------------------------------------ axes of size 1

/// Drops those of `axes` that have size 1, as torch saw them.
void squeeze_axes(LoweringContext& ctx, const std::vector<std::int64_t>& axes) {
  Value* x = ctx.input(0);
  std::vector<std::int64_t> dropped;
  for (const std::int64_t axis : axes) {
    if (ctx.size(x, axis).constant() == 1) dropped.push_back(axis);
  }
  const auto rank_after = ctx.output_type().rank();
  const bool agrees = rank_after == ctx.rank(x) - dropped.size();
  ctx.result(agrees ? ctx.squeeze(x, dropped) : ctx.reshape_like_output(x));
}

void lower_squeeze(LoweringContext& ctx) { squeeze_axes(ctx, counted(ctx.rank(ctx.input(0)))); }

void lower_squeeze_dim(LoweringContext& ctx) {
  const std::size_t rank = ctx.rank(ctx.input(0));
  if (rank == 0 || ctx.integers(1).empty()) return ctx.result(ctx.input(0));
  squeeze_axes(ctx, ctx.axes(1, rank));
}

void lower_unsqueeze(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  ctx.result(ctx.unsqueeze(x, {ctx.axis(1, ctx.rank(x) + 1)}));
}

// ------------------------------------------------------------------------------------------------ order of axes

void lower_permute(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const auto rank = static_cast<std::int64_t>(ctx.rank(x));
  std::vector<std::int64_t> permutation = ctx.integers(1);
  for (std::int64_t& axis : permutation) axis += axis < 0 ? rank : 0;
  ctx.result(ctx.transpose(x, permutation));
}

void lower_transpose(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const std::size_t rank = ctx.rank(x);
  ctx.result(ctx.swap_axes(x, ctx.axis(1, rank), ctx.axis(2, rank)));
}

void lower_t(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  ctx.result(ctx.rank(x) < 2 ? x : ctx.swap_axes(x, 0, 1));
}

void lower_matrix_transpose(LoweringContext& ctx) { ctx.result(ctx.swap_axes(ctx.input(0), -2, -1)); }

void lower_numpy_t(LoweringContext& ctx) {
  std::vector<std::int64_t> permutation = counted(ctx.rank(ctx.input(0)));
  std::ranges::reverse(permutation);
  ctx.result(ctx.transpose(ctx.input(0), permutation));
}

void lower_movedim(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const auto rank = static_cast<std::int64_t>(ctx.rank(x));
  std::vector<std::int64_t> sources = ctx.integers(1);
  std::vector<std::int64_t> targets = ctx.integers(2);
  if (rank == 0) return ctx.result(x);
  std::vector<std::int64_t> permutation(static_cast<std::size_t>(rank), -1);
  std::vector<std::int64_t> rest = counted(permutation.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::int64_t source = (sources[i] + rank) % rank;
    permutation.at(static_cast<std::size_t>((targets[i] + rank) % rank)) = source;
    std::erase(rest, source);
  }
  auto next = rest.begin();
  for (std::int64_t& axis : permutation) axis = axis < 0 ? *next++ : axis;
  ctx.result(ctx.transpose(x, permutation));
}

// ------------------------------------------------------------------------------------------------ repetition

void lower_expand(LoweringContext& ctx) { ctx.result(ctx.expand(ctx.input(0), ctx.sizes(1))); }

void lower_expand_as(LoweringContext& ctx) { ctx.result(ctx.expand(ctx.input(0), ctx.sizes_of(ctx.input(1)))); }

void lower_broadcast_tensors(LoweringContext& ctx) {
  std::vector<Value*> results = ctx.inputs(0);
  for (std::size_t i = 0; i < results.size(); ++i) results[i] = ctx.expand(results[i], ctx.output_sizes(i));
  ctx.results(results);
}

/// The value with axes of size 1 put in front until it has that rank.
Value* with_rank(LoweringContext& ctx, Value* x, std::size_t rank) {
  return ctx.unsqueeze(x, counted(rank - std::min(rank, ctx.rank(x))));
}

void lower_repeat(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  std::vector<Size> repeats = ctx.sizes(1);
  while (repeats.size() < ctx.rank(x)) repeats.insert(repeats.begin(), Size(1));  // tile alone
  x = with_rank(ctx, x, repeats.size());
  const bool is_plain = std::ranges::all_of(repeats, [](const Size& count) { return count.number() == 1; });
  ctx.result(is_plain ? x : ctx.op("Tile", {x, ctx.concat_sizes(repeats)}));
}

/// [0, 0, 1, 2, 2, …]: each position as often as `repeats` says.
Value* repeated_positions(LoweringContext& ctx, Value* repeats) {
  // Marks the position behind the last copy of each element; the running count of marks is then the element. Marks of
  // elements that are not repeated fall together and add up.
  repeats = ctx.cast(repeats, DType::kInt64);
  repeats = stops_unless(ctx, none_below(ctx, repeats, 0), repeats);
  Value* ends = ctx.op("CumSum", {repeats, ctx.constant(0, DType::kInt64)});
  Value* total = ctx.reduce("ReduceSum", repeats, {0}, true);
  Value* slots = ctx.filled({Size(ctx.op("Add", {total, ctx.ints({1})}))}, ctx.constant(0, DType::kInt64));
  Value* ones = ctx.filled({size_of(ctx, repeats, 0)}, ctx.constant(1, DType::kInt64));
  Value* marks = ctx.op("ScatterElements", {slots, ends, ones}, {{"axis", 0}, {"reduction", "add"}});
  Value* counts = ctx.op("CumSum", {marks, ctx.constant(0, DType::kInt64)});
  return ctx.op("Slice", {counts, ctx.ints({0}), total});
}

void lower_repeat_interleave_positions(LoweringContext& ctx) { ctx.result(repeated_positions(ctx, ctx.input(0))); }

/// The value and the axis to repeat along; without one the value is flattened.
std::pair<Value*, std::int64_t> repeated_axis(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const bool is_flat = !ctx.has(2) || ctx.rank(x) == 0;
  if (is_flat) return {ctx.reshape(x, {Size(-1)}), 0};
  return {x, ctx.axis(2, ctx.rank(x))};
}

void lower_repeat_interleave_by_tensor(LoweringContext& ctx) {
  const auto [x, axis] = repeated_axis(ctx);
  Value* repeats = ctx.reshape(ctx.input(1), {Size(-1)});
  if (ctx.size(repeats, 0).constant() == 1) repeats = ctx.expand(repeats, {size_of(ctx, x, axis)});
  ctx.result(ctx.gather(x, repeated_positions(ctx, repeats), axis));
}

void lower_repeat_interleave_by_count(LoweringContext& ctx) {
  const auto [x, axis] = repeated_axis(ctx);
  const auto at = static_cast<std::size_t>(axis);
  const Size count = ctx.sizes(1).front();
  const std::vector<Size> sizes = ctx.sizes_of(x);
  std::vector<Size> copies = sizes;
  copies.insert(copies.begin() + axis + 1, count);
  const std::vector<Size> merged = with_merged(sizes, at, at + 1, multiply(ctx, sizes[at], count));
  ctx.result(ctx.reshape(ctx.expand(ctx.unsqueeze(x, {axis + 1}), copies), merged));
}

}  // namespace

void populate_reshaping(LoweringTable& table) {
  table.add({"aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", "aten.view_copy.default",
             "aten._reshape_alias.default", "aten._reshape_copy.default"},
            lower_view);
  table.add({"aten.view_as.default", "aten.reshape_as.default"}, lower_reshape_as);
  table.add({"aten.flatten.using_ints", "aten.unflatten.int", "aten.ravel.default", "aten.atleast_1d.default",
             "aten.atleast_2d.default", "aten.atleast_3d.default"},
            lower_to_output_shape);
  table.add({"aten.atleast_1d.Sequence", "aten.atleast_2d.Sequence", "aten.atleast_3d.Sequence"},
            lower_each_to_output_shape);
  table.add({"aten.view.dtype", "aten.view_copy.dtype"}, lower_view_dtype);

  table.add({"aten.squeeze.default", "aten.squeeze_copy.default"}, lower_squeeze);
  table.add({"aten.squeeze.dim", "aten.squeeze.dims", "aten.squeeze_copy.dim", "aten.squeeze_copy.dims"},
            lower_squeeze_dim);
  table.add({"aten.unsqueeze.default", "aten.unsqueeze_copy.default"}, lower_unsqueeze);
  table.add({"aten.permute.default", "aten.permute_copy.default"}, lower_permute);
  table.add({"aten.transpose.int", "aten.transpose_copy.int", "aten.swapaxes.default", "aten.swapdims.default"},
            lower_transpose);
  table.add({"aten.t.default", "aten.t_copy.default"}, lower_t);
  table.add({"aten.mT.default", "aten.mH.default", "aten.matrix_H.default", "aten.adjoint.default"},
            lower_matrix_transpose);
  table.add("aten.numpy_T.default", lower_numpy_t);
  table.add({"aten.movedim.int", "aten.movedim.intlist", "aten.moveaxis.int", "aten.moveaxis.intlist"}, lower_movedim);

  table.add({"aten.expand.default", "aten.expand_copy.default", "aten.broadcast_to.default"}, lower_expand);
  table.add("aten.expand_as.default", lower_expand_as);
  table.add("aten.broadcast_tensors.default", lower_broadcast_tensors);
  table.add({"aten.repeat.default", "aten.tile.default"}, lower_repeat);
  table.add("aten.repeat_interleave.Tensor", lower_repeat_interleave_positions);
  table.add("aten.repeat_interleave.self_Tensor", lower_repeat_interleave_by_tensor);
  table.add("aten.repeat_interleave.self_int", lower_repeat_interleave_by_count);

  table.add_complex({"aten.view.default",
                     "aten.reshape.default",
                     "aten._unsafe_view.default",
                     "aten.unsqueeze.default",
                     "aten.squeeze.default",
                     "aten.squeeze.dim",
                     "aten.squeeze.dims",
                     "aten.transpose.int",
                     "aten.permute.default",
                     "aten.t.default",
                     "aten.expand.default",
                     "aten.expand_as.default",
                     "aten.flatten.using_ints",
                     "aten.unflatten.int",
                     "aten.repeat.default",
                     "aten.movedim.intlist",
                     "aten.movedim.int",
                     "aten.view_as.default",
                     "aten.reshape_as.default",
                     "aten.ravel.default",
                     "aten.numpy_T.default",
                     "aten.mT.default",
                     "aten.tile.default",
                     "aten.squeeze_copy.default",
                     "aten.repeat_interleave.self_int",
                     "aten.atleast_1d.default",
                     "aten.swapaxes.default"},
                    separate_each);
}

}  // namespace exportguard::lowering
