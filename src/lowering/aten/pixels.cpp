#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/kernels.h"
#include "lowering/scatter.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

/// 0, 1, … up to `count`, then `tail` counted from there.
std::vector<std::int64_t> permutation_with_tail(std::size_t count, const std::vector<std::int64_t>& tail) {
  std::vector<std::int64_t> permutation = counted(count);
  for (const std::int64_t axis : tail) permutation.push_back(static_cast<std::int64_t>(count) + axis);
  return permutation;
}

Size divided(LoweringContext& ctx, const Size& size, std::int64_t divisor) {
  if (size.number()) return *size.number() / divisor;
  return Size(ctx.op("Div", {size.value(), ctx.ints({divisor})}));
}

/// The sizes before the last three axes, channels, rows and columns.
std::vector<Size> batch_sizes(LoweringContext& ctx, Value* x) {
  std::vector<Size> sizes = ctx.sizes_of(x);
  sizes.erase(sizes.end() - 3, sizes.end());
  return sizes;
}

void lower_pixel_shuffle(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const std::int64_t factor = ctx.integer(1);
  if (ctx.rank(x) == 4 && has_kernel(ctx.target(), "DepthToSpace", x->dtype())) {
    return ctx.result(ctx.op("DepthToSpace", {x}, {{"blocksize", factor}, {"mode", "CRD"}}));
  }
  std::vector<Size> sizes = batch_sizes(ctx, x);
  const std::size_t batch = sizes.size();
  const Size channels = divided(ctx, size_of(ctx, x, -3), factor * factor);
  sizes.insert(sizes.end(), {channels, Size(factor), Size(factor), size_of(ctx, x, -2), size_of(ctx, x, -1)});
  Value* blocks = ctx.transpose(ctx.reshape(x, sizes), permutation_with_tail(batch, {0, 3, 1, 4, 2}));
  ctx.result(ctx.reshape_like_output(blocks));
}

void lower_pixel_unshuffle(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const std::int64_t factor = ctx.integer(1);
  std::vector<Size> sizes = batch_sizes(ctx, x);
  const std::size_t batch = sizes.size();
  sizes.insert(sizes.end(), {size_of(ctx, x, -3), divided(ctx, size_of(ctx, x, -2), factor), Size(factor),
                             divided(ctx, size_of(ctx, x, -1), factor), Size(factor)});
  Value* blocks = ctx.transpose(ctx.reshape(x, sizes), permutation_with_tail(batch, {0, 2, 4, 1, 3}));
  ctx.result(ctx.reshape_like_output(blocks));
}

void lower_channel_shuffle(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const std::int64_t groups = ctx.integer(1);
  std::vector<Size> sizes = ctx.sizes_of(x);
  const Size per_group = divided(ctx, sizes.at(1), groups);
  sizes = with_merged(sizes, 1, 2, groups);
  sizes.insert(sizes.begin() + 2, per_group);
  ctx.result(ctx.reshape_like_output(ctx.swap_axes(ctx.reshape(x, sizes), 1, 2)));
}

// ------------------------------------------------------------------------------------------------ sliding blocks

/// How blocks lie along one of the two last axes.
struct Blocks {
  std::int64_t kernel;
  std::int64_t dilation;
  std::int64_t padding;
  std::int64_t stride;
};

/// From the arguments kernel_size, dilation, padding and stride, which begin at position `first`.
Blocks blocks(LoweringContext& ctx, std::size_t first, std::size_t which) {
  const auto pick = [&](std::size_t i) {
    const std::vector<std::int64_t> numbers = ctx.integers(first + i);
    return numbers.size() == 1 ? numbers[0] : numbers.at(which);
  };
  return {pick(0), pick(1), pick(2), pick(3)};
}

/// How many blocks fit on an axis of that size: (size + 2 padding - dilation (kernel - 1) - 1) / stride + 1.
Size block_count(LoweringContext& ctx, const Size& size, const Blocks& b) {
  const Size room = add(ctx, size, 2 * b.padding - b.dilation * (b.kernel - 1) - 1);
  return add(ctx, divided(ctx, room, b.stride), 1);
}

/// int64[kernel, count]: where element k of block n stands on the padded axis.
Value* block_positions(LoweringContext& ctx, const Blocks& b, const Size& count) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t k = 0; k < b.kernel; ++k) offsets.push_back(k * b.dilation);
  Value* starts = ctx.op("Mul", {range(ctx, count), ctx.ints({b.stride})});
  return ctx.op("Add", {ctx.unsqueeze(ctx.ints(offsets), {1}), starts});
}

/// Blocks of an image of rank 3 or 4 as columns: [batch, channels · kernel, blocks].
void lower_im2col(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const bool has_batch = ctx.rank(x) == 4;
  const Blocks rows = blocks(ctx, 1, 0);
  const Blocks columns = blocks(ctx, 1, 1);
  const Size row_count = block_count(ctx, size_of(ctx, x, -2), rows);
  const Size column_count = block_count(ctx, size_of(ctx, x, -1), columns);

  const std::int64_t first = has_batch ? 2 : 1;
  // For every axis: see padding.cpp.
  std::vector<std::int64_t> amounts(static_cast<std::size_t>(2 * (first + 2)), 0);
  for (const std::int64_t end : {first, 2 * first + 2}) {
    amounts[static_cast<std::size_t>(end)] = rows.padding;
    amounts[static_cast<std::size_t>(end + 1)] = columns.padding;
  }
  Value* image = ctx.op("Pad", {x, ctx.ints(amounts)}, {{"mode", "constant"}});

  // [batch, channels, kernel rows, block rows, kernel columns, block columns], then kernels before blocks.
  Value* by_row = ctx.gather(image, block_positions(ctx, rows, row_count), first);
  Value* by_both = ctx.gather(by_row, block_positions(ctx, columns, column_count), first + 2);
  Value* ordered = ctx.transpose(by_both, permutation_with_tail(static_cast<std::size_t>(first), {0, 2, 1, 3}));
  ctx.result(ctx.reshape_like_output(ordered));
}

/// Columns added up into an image, by the place of each element on the padded image; for every dtype.
Value* scattered_columns(LoweringContext& ctx, Value* x, const Blocks& rows, const Blocks& columns) {
  const std::vector<Size> sizes = ctx.sizes(1);
  const Size height = add(ctx, sizes.at(0), 2 * rows.padding);
  const Size width = add(ctx, sizes.at(1), 2 * columns.padding);
  const Size batch = size_of(ctx, x, 0);
  const Size channels = divided(ctx, size_of(ctx, x, 1), rows.kernel * columns.kernel);

  // [kernel rows, kernel columns, block rows, block columns]
  Value* row_places = block_positions(ctx, rows, block_count(ctx, sizes.at(0), rows));
  Value* column_places = block_positions(ctx, columns, block_count(ctx, sizes.at(1), columns));
  Value* starts = ctx.op("Mul", {ctx.unsqueeze(row_places, {1, 3}), as_dim(ctx, width)});
  Value* places = ctx.reshape(ctx.op("Add", {starts, ctx.unsqueeze(column_places, {0, 2})}), {1, 1, -1});

  const Size count = multiply(ctx, rows.kernel * columns.kernel, size_of(ctx, x, 2));
  Value* flat = ctx.reshape(x, {batch, channels, count});
  Value* image = ctx.filled({batch, channels, multiply(ctx, height, width)}, ctx.number_like(0, x));
  places = ctx.expand(places, {batch, channels, count});
  image = scatter_elements(ctx, image, 2, places, flat, Reduction::kAdd);
  image = ctx.reshape(image, {batch, channels, height, width});
  image = ctx.slice(image, 2, rows.padding, add(ctx, sizes.at(0), rows.padding));
  return ctx.slice(image, 3, columns.padding, add(ctx, sizes.at(1), columns.padding));
}

Value* columns_by_operator(LoweringContext& ctx, Value* x, const Blocks& rows, const Blocks& columns) {
  Value* kernel = ctx.ints({rows.kernel, columns.kernel});
  return ctx.op("Col2Im",
                {ctx.cast(x, kernel_dtype(ctx, "Col2Im", x->dtype())), ctx.concat_sizes(ctx.sizes(1)), kernel},
                {{"dilations", std::vector<std::int64_t>{rows.dilation, columns.dilation}},
                 {"pads", std::vector<std::int64_t>{rows.padding, columns.padding, rows.padding, columns.padding}},
                 {"strides", std::vector<std::int64_t>{rows.stride, columns.stride}}});
}

/// The inverse layout of im2col.
void lower_col2im(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  Value* batched = ctx.rank(x) == 3 ? x : ctx.unsqueeze(x, {0});
  const Blocks rows = blocks(ctx, 2, 0);
  const Blocks columns = blocks(ctx, 2, 1);
  Value* image =
      (lacks_double(ctx, "Col2Im", x->dtype()) ? scattered_columns : columns_by_operator)(ctx, batched, rows, columns);
  ctx.result(batched == x ? image : ctx.squeeze(image, {0}));
}

}  // namespace

void populate_pixels(LoweringTable& table) {
  table.add("aten.pixel_shuffle.default", lower_pixel_shuffle);
  table.add("aten.pixel_unshuffle.default", lower_pixel_unshuffle);
  table.add({"aten.channel_shuffle.default", "aten.native_channel_shuffle.default"}, lower_channel_shuffle);
  table.add("aten.im2col.default", lower_im2col);
  table.add("aten.col2im.default", lower_col2im);
}

}  // namespace exportguard::lowering
