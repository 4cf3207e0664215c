#include <algorithm>
#include <optional>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/complex_rules.h"
#include "lowering/kernels.h"
#include "lowering/scatter.h"
#include "lowering/size_arithmetic.h"

// x[…] with a mixture of None, integer tensors and masks, and writes into it. A mask of rank k stands for k axes;
// integer tensors broadcast together; their axes come in the place of the first where they are neighbours, else in
// front.

namespace exportguard::lowering {
namespace {

bool is_mask(const Value* index) { return index->dtype() == DType::kBool || index->dtype() == DType::kUint8; }

Value* as_mask(LoweringContext& ctx, Value* index) { return ctx.cast(index, DType::kBool); }

struct IndexedAxis {
  std::size_t axis;
  Value* index;  ///< int64
};

/// The list of indices as the node has it.
struct Given {
  std::vector<Value*> all;
  std::vector<std::size_t> positions;  ///< of those that are not None

  Value* only() const { return positions.size() == 1 ? all[positions.front()] : nullptr; }
  bool are_neighbours() const { return positions.back() - positions.front() + 1 == positions.size(); }
};

Given given_indices(LoweringContext& ctx) {
  Given given{ctx.inputs(1), {}};
  for (std::size_t i = 0; i < given.all.size(); ++i) {
    if (given.all[i] != nullptr) given.positions.push_back(i);
  }
  return given;
}

// ------------------------------------------------------------------------------------------------ one mask

/// The elements where the mask is true, along the one axis that the masked axes become.
Value* masked(LoweringContext& ctx, Value* x, std::size_t axis, Value* mask) {
  const std::size_t depth = ctx.rank(mask);
  if (depth != 1) {
    const Size merged = merged_size(ctx, x, axis, axis + depth);
    x = ctx.reshape(x, with_merged(ctx.sizes_of(x), axis, axis + depth, merged));
    mask = ctx.reshape(mask, {Size(-1)});
  }
  return ctx.op("Compress", {x, as_mask(ctx, mask)}, {{"axis", static_cast<std::int64_t>(axis)}});
}

/// The mask and a value that is the same for every true element of it, laid out to broadcast against x; nothing if the
/// value depends on which true element it is.
std::optional<std::pair<Value*, Value*>> as_fill(LoweringContext& ctx, const Value* x, std::size_t axis, Value* mask,
                                                 Value* value) {
  const std::size_t depth = ctx.rank(mask);
  const std::size_t behind = ctx.rank(x) - axis - depth;
  const std::size_t rank = ctx.rank(value);
  if (rank > behind) {
    const auto at = static_cast<std::int64_t>(rank - behind - 1);  // counts the true elements
    if (ctx.size(value, at).constant() != 1) return std::nullopt;
    if (depth == 0) value = ctx.squeeze(value, {at});
    if (depth > 1) value = ctx.unsqueeze(value, counted(depth - 1, at));
  }
  Value* spread = ctx.unsqueeze(as_mask(ctx, mask), counted(behind, static_cast<std::int64_t>(depth)));
  return std::pair(spread, value);
}

// ------------------------------------------------------------------------------------------------ any mixture

std::vector<IndexedAxis> indexed_axes(LoweringContext& ctx, const Given& given) {
  std::vector<IndexedAxis> axes;
  std::size_t axis = 0;
  for (Value* index : given.all) {
    if (index == nullptr) {
      ++axis;
    } else if (is_mask(index)) {
      Value* positions = kernel_op(ctx, "NonZero", {as_mask(ctx, index)});
      for (std::size_t i = 0; i < ctx.rank(index); ++i) {
        axes.push_back({axis++, ctx.gather(positions, ctx.constant(static_cast<std::int64_t>(i), DType::kInt64), 0)});
      }
    } else {
      axes.push_back({axis++, ctx.cast(index, DType::kInt64)});
    }
  }
  return axes;
}

std::vector<Size> broadcast_sizes(LoweringContext& ctx, const std::vector<IndexedAxis>& axes) {
  std::vector<Size> result;
  for (const IndexedAxis& entry : axes) {
    std::vector<Size> sizes = ctx.sizes_of(entry.index);
    if (sizes.size() > result.size()) std::swap(sizes, result);
    const std::size_t offset = result.size() - sizes.size();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      result[offset + i] = broadcast(ctx, result[offset + i], sizes[i]);
    }
  }
  return result;
}

/// x with its indexed axes in front, and one tensor with the positions in them: int64[…, number of indexed axes].
struct Selection {
  std::size_t depth;                     ///< number of indexed axes
  std::vector<Size> broadcast;           ///< sizes of the positions
  std::vector<std::int64_t> to_front;    ///< permutation of x
  std::vector<std::int64_t> into_place;  ///< from [positions…, other axes…] to torch's order
  Value* positions;
};

std::vector<std::int64_t> axes_to_front(const std::vector<IndexedAxis>& axes, std::size_t rank) {
  std::vector<std::int64_t> permutation;
  for (const IndexedAxis& entry : axes) permutation.push_back(static_cast<std::int64_t>(entry.axis));
  for (const std::int64_t axis : counted(rank)) {
    if (std::ranges::find(permutation, axis) == permutation.end()) permutation.push_back(axis);
  }
  return permutation;
}

Selection select(LoweringContext& ctx, const Value* x, const Given& given) {
  const std::vector<IndexedAxis> axes = indexed_axes(ctx, given);
  const std::vector<Size> sizes = broadcast_sizes(ctx, axes);
  const auto last = static_cast<std::int64_t>(sizes.size());
  std::vector<Value*> columns;
  for (const IndexedAxis& entry : axes) columns.push_back(ctx.unsqueeze(ctx.expand(entry.index, sizes), {last}));
  const std::size_t rank = ctx.rank(x);
  const std::size_t before = given.are_neighbours() ? axes.front().axis : 0;
  std::vector<std::int64_t> into_place = counted(before, last);
  const auto append = [&](const std::vector<std::int64_t>& more) {
    into_place.insert(into_place.end(), more.begin(), more.end());
  };
  append(counted(sizes.size()));
  append(counted(rank - axes.size() - before, last + static_cast<std::int64_t>(before)));
  return {axes.size(), sizes, axes_to_front(axes, rank), into_place, ctx.concat(columns, last)};
}

/// A mask of rank 0 stands for no axis: x gets one of size 1 and the mask becomes a vector.
Value* without_flat_masks(LoweringContext& ctx, Value* x, Given& given) {
  std::size_t axis = 0;
  for (Value*& index : given.all) {
    if (index != nullptr && is_mask(index) && ctx.rank(index) == 0) {
      x = ctx.unsqueeze(x, {static_cast<std::int64_t>(axis)});
      index = ctx.unsqueeze(index, {0});
    }
    axis += index != nullptr && is_mask(index) ? ctx.rank(index) : 1;
  }
  return x;
}

Value* indexed(LoweringContext& ctx, Value* x, Given given) {
  if (given.positions.empty()) return x;
  const auto axis = given.positions.front();
  if (Value* only = given.only()) {
    if (is_mask(only)) return masked(ctx, x, axis, only);
    return ctx.gather(x, ctx.cast(only, DType::kInt64), static_cast<std::int64_t>(axis));
  }
  x = without_flat_masks(ctx, x, given);
  const Selection selection = select(ctx, x, given);
  Value* found = ctx.op("GatherND", {ctx.transpose(x, selection.to_front), selection.positions});
  return ctx.transpose(found, selection.into_place);
}

void lower_index(LoweringContext& ctx) { ctx.result(indexed(ctx, ctx.input(0), given_indices(ctx))); }

// ------------------------------------------------------------------------------------------------ writes

/// Writes along one axis at a vector of positions, without moving axes.
Value* put_along_axis(LoweringContext& ctx, Value* x, std::size_t axis, Value* index, Value* values,
                      Reduction reduction) {
  std::vector<Size> sizes = ctx.sizes_of(x);
  sizes[axis] = size_of(ctx, index, 0);
  return scatter_slices(ctx, x, static_cast<std::int64_t>(axis), index, ctx.expand(values, sizes), reduction);
}

Value* put_anywhere(LoweringContext& ctx, Value* x, const Given& given, Value* values, Reduction reduction) {
  const Selection selection = select(ctx, x, given);
  Value* moved = ctx.transpose(x, selection.to_front);
  std::vector<Size> sizes = selection.broadcast;
  for (std::size_t i = selection.depth; i < selection.to_front.size(); ++i) {
    sizes.push_back(size_of(ctx, x, selection.to_front[i]));
  }
  std::vector<Size> placed;
  for (const std::int64_t axis : selection.into_place) placed.push_back(sizes[static_cast<std::size_t>(axis)]);
  Value* updates = ctx.transpose(ctx.expand(values, placed), inverse(selection.into_place));
  Value* written = scatter_nd(ctx, moved, selection.positions, updates, reduction);
  return ctx.transpose(written, inverse(selection.to_front));
}

Value* put(LoweringContext& ctx, Value* x, Given given, Value* values, Reduction reduction) {
  values = ctx.cast(values, x->dtype());
  if (given.positions.empty()) {
    Value* all = ctx.expand(values, ctx.sizes_of(x));
    return reduction == Reduction::kNone ? all : same_dtype_op(ctx, "Add", {x, all});
  }
  const std::size_t axis = given.positions.front();
  Value* only = given.only();
  if (only != nullptr && is_mask(only) && reduction == Reduction::kNone) {
    if (const auto fill = as_fill(ctx, x, axis, only, values)) return ctx.where(fill->first, fill->second, x);
  }
  if (only != nullptr && !is_mask(only) && ctx.rank(only) == 1) {
    return put_along_axis(ctx, x, axis, ctx.cast(only, DType::kInt64), values, reduction);
  }
  Value* raised = without_flat_masks(ctx, x, given);
  Value* written = put_anywhere(ctx, raised, given, values, reduction);
  return raised == x ? written : ctx.reshape(written, ctx.sizes_of(x));
}

void lower_index_put(LoweringContext& ctx) {
  const Reduction reduction = ctx.flag(3) ? Reduction::kAdd : Reduction::kNone;
  ctx.result(put(ctx, ctx.input(0), given_indices(ctx), ctx.input(2), reduction));
}

// ------------------------------------------------------------------------------------------------ beside the tensor

/// Positions beside the tensor are allowed where the mask is false: they are moved to its end.
Given clamped_indices(LoweringContext& ctx, Value* x) {
  Given given{ctx.inputs(2), {}};
  for (std::size_t i = 0; i < given.all.size(); ++i) {
    if (given.all[i] == nullptr) continue;
    given.positions.push_back(i);
    const auto axis = static_cast<std::int64_t>(i);
    Value* size = as_scalar(ctx, size_of(ctx, x, axis));
    Value* last = as_scalar(ctx, subtract(ctx, size_of(ctx, x, axis), 1));
    Value* index = ctx.cast(given.all[i], DType::kInt64);
    given.all[i] = ctx.op("Max", {ctx.op("Min", {index, last}), ctx.op("Neg", {size})});
  }
  return given;
}

void lower_masked_index(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  Value* found = indexed(ctx, x, clamped_indices(ctx, x));
  ctx.result(ctx.where(as_mask(ctx, ctx.input(1)), found, ctx.scalar(3, x->dtype())));
}

void lower_masked_index_put(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  Value* values = ctx.cast(ctx.input(3), x->dtype());
  Value* masked_values = ctx.where(as_mask(ctx, ctx.input(1)), values, ctx.constant(0, x->dtype()));
  ctx.result(put(ctx, x, clamped_indices(ctx, x), masked_values, Reduction::kAdd));
}

}  // namespace

void populate_indexing(LoweringTable& table) {
  table.add({"aten.index.Tensor", "aten._unsafe_index.Tensor"}, lower_index);
  table.add({"aten.index_put.default", "aten._index_put_impl.default", "aten._unsafe_index_put.default"},
            lower_index_put);
  table.add("aten._unsafe_masked_index.default", lower_masked_index);
  table.add("aten._unsafe_masked_index_put_accumulate.default", lower_masked_index_put);
  table.add_complex({"aten.index.Tensor", "aten.index_put.default"}, separate_each);
}

}  // namespace exportguard::lowering
