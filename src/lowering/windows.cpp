#include "lowering/windows.h"

#include <algorithm>

#include "lowering/contraction.h"
#include "lowering/reductions.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

using Numbers = std::vector<std::int64_t>;

Size divided(LoweringContext& ctx, const Size& size, std::int64_t divisor) {
  if (divisor == 1) return size;
  if (size.number()) return *size.number() / divisor;
  return ctx.op("Div", {size.value(), ctx.ints({divisor})});
}

/// int64[kernel, count]: where element k of window n stands on its axis.
Value* positions(LoweringContext& ctx, const WindowGrid& grid, const Size& count, std::size_t i) {
  Value* offsets = ctx.op("Mul", {range(ctx, grid.kernel[i]), ctx.ints({grid.dilation[i]})});
  Value* starts = ctx.op("Mul", {range(ctx, count), ctx.ints({grid.stride[i]})});
  return ctx.op("Add", {ctx.unsqueeze(offsets, {1}), starts});
}

Size product(LoweringContext& ctx, const std::vector<Size>& sizes) {
  Size result = 1;
  for (const Size& size : sizes) result = multiply(ctx, result, size);
  return result;
}

std::vector<Size> joined(std::vector<Size> first, const std::vector<Size>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// 0, 1, the even ones behind them, then the odd ones: kernels in front of windows.
Numbers kernels_first(std::size_t spatial) {
  Numbers order = {0, 1};
  for (std::size_t i = 0; i < spatial; ++i) order.push_back(static_cast<std::int64_t>(2 + 2 * i));
  for (std::size_t i = 0; i < spatial; ++i) order.push_back(static_cast<std::int64_t>(3 + 2 * i));
  return order;
}

/// `stride` - 1 zeros behind each element of an axis.
Value* spread_apart(LoweringContext& ctx, Value* x, std::int64_t axis, std::int64_t stride) {
  if (stride == 1) return x;
  std::vector<Size> sizes = ctx.sizes_of(x);
  const auto at = static_cast<std::size_t>(axis);
  sizes[at] = multiply(ctx, size_of(ctx, x, axis), stride);
  Value* apart = ctx.unsqueeze(x, {axis + 1});
  Numbers amounts(2 * ctx.rank(apart), 0);
  amounts[ctx.rank(apart) + at + 1] = stride - 1;
  return ctx.reshape(ctx.op("Pad", {apart, ctx.ints(amounts)}, {{"mode", "constant"}}), sizes);
}

std::int64_t known(LoweringContext& ctx, const Size& size) {
  ctx.require(size.number().has_value(), "the sizes of the weight must be known");
  return *size.number();
}

/// [in, out / groups, kernel…] as the weight of the convolution that gives the same: [out, in / groups, kernel…], every
/// kernel from end to start.
Value* weight_of_inverse(LoweringContext& ctx, Value* weight, std::int64_t groups) {
  const std::size_t spatial = ctx.rank(weight) - 2;
  const std::vector<Size> sizes = ctx.sizes_of(weight);
  const std::int64_t in = known(ctx, size_of(ctx, weight, 0));
  const std::int64_t out = known(ctx, size_of(ctx, weight, 1));
  const std::vector<Size> kernel(sizes.begin() + 2, sizes.end());
  Numbers order = {0, 2, 1};
  for (std::size_t i = 0; i < spatial; ++i) order.push_back(static_cast<std::int64_t>(i) + 3);
  Value* grouped = ctx.transpose(ctx.reshape(weight, joined({groups, in / groups, out}, kernel)), order);
  Value* result = ctx.reshape(grouped, joined({groups * out, in / groups}, kernel));
  for (std::size_t i = 0; i < spatial; ++i) {
    const auto axis = static_cast<std::int64_t>(i) + 2;
    Numbers backwards;
    for (std::int64_t k = known(ctx, size_of(ctx, weight, axis)); k-- > 0;) backwards.push_back(k);
    if (backwards.size() > 1) result = ctx.gather(result, ctx.ints(backwards), axis);
  }
  return result;
}

}  // namespace

Value* with_bias(LoweringContext& ctx, Value* y, Value* bias, std::size_t spatial) {
  if (bias == nullptr) return y;
  Numbers behind;
  for (std::size_t i = 0; i < spatial; ++i) behind.push_back(static_cast<std::int64_t>(i) + 1);
  return ctx.op("Add", {y, ctx.unsqueeze(bias, behind)});
}

std::vector<Size> window_counts(LoweringContext& ctx, Value* x, const WindowGrid& grid) {
  const std::size_t count = grid.spatial();
  std::vector<Size> counts;
  for (std::size_t i = 0; i < count; ++i) {
    const Size padded =
        add(ctx, size_of(ctx, x, static_cast<std::int64_t>(i) + 2), grid.pads[i] + grid.pads[count + i]);
    const Size reach = multiply(ctx, subtract(ctx, grid.kernel[i], 1), grid.dilation[i]);
    counts.push_back(add(ctx, divided(ctx, subtract(ctx, subtract(ctx, padded, reach), 1), grid.stride[i]), 1));
  }
  return counts;
}

Value* with_margins(LoweringContext& ctx, Value* x, const Numbers& pads, Value* filler) {
  if (std::ranges::all_of(pads, [](std::int64_t pad) { return pad == 0; })) return x;
  const std::size_t count = pads.size() / 2;
  Numbers amounts(4 + 2 * count, 0);  // of every axis, those before first
  std::copy_n(pads.begin(), count, amounts.begin() + 2);
  std::copy_n(pads.begin() + static_cast<std::ptrdiff_t>(count), count,
              amounts.begin() + static_cast<std::ptrdiff_t>(4 + count));
  return ctx.op("Pad", {x, ctx.ints(amounts), filler}, {{"mode", "constant"}});
}

Value* windows_of(LoweringContext& ctx, Value* x, const WindowGrid& grid, const std::vector<Size>& counts) {
  Value* windows = with_margins(ctx, x, grid.pads, ctx.number_like(0, x));
  for (std::size_t i = 0; i < grid.spatial(); ++i) {
    windows = ctx.gather(windows, positions(ctx, grid, counts[i], i), static_cast<std::int64_t>(2 + 2 * i));
  }
  return ctx.transpose(windows, kernels_first(grid.spatial()));
}

Value* window_sums(LoweringContext& ctx, Value* x, const WindowGrid& grid, const std::vector<Size>& counts) {
  Numbers axes;
  for (std::size_t i = 0; i < grid.spatial(); ++i) axes.push_back(static_cast<std::int64_t>(i) + 2);
  return sum(ctx, windows_of(ctx, x, grid, counts), {axes, false});
}

Value* convolved(LoweringContext& ctx, const std::vector<Value*>& operands, const WindowGrid& grid,
                 std::int64_t groups) {
  Value* x = operands.at(0);
  Value* weight = operands.at(1);
  const std::vector<Size> counts = window_counts(ctx, x, grid);
  const Size batch = size_of(ctx, x, 0);
  const Size rows = multiply(ctx, size_of(ctx, weight, 1), product(ctx, grid.kernel));
  const std::vector<Size> columns_shape = {batch, groups, rows, product(ctx, counts)};
  Value* columns = ctx.reshape(windows_of(ctx, x, grid, counts), columns_shape);

  const Size out = size_of(ctx, weight, 0);
  const Size per_group = groups == 1 ? out : divided(ctx, out, groups);
  Value* y = matmul(ctx, ctx.reshape(weight, {groups, per_group, rows}), columns);
  return with_bias(ctx, ctx.reshape(y, joined({batch, out}, counts)), operands.at(2), grid.spatial());
}

Value* convolved_transposed(LoweringContext& ctx, const std::vector<Value*>& operands, const WindowGrid& grid,
                            std::int64_t groups, const Numbers& output_padding) {
  const std::size_t count = grid.spatial();
  Value* x = operands.at(0);
  WindowGrid inverse = grid;
  inverse.stride = Numbers(count, 1);

  std::vector<std::pair<std::int64_t, std::int64_t>> cuts(count);
  for (std::size_t i = 0; i < count; ++i) {
    x = spread_apart(ctx, x, static_cast<std::int64_t>(i) + 2, grid.stride[i]);
    const std::int64_t reach = grid.dilation[i] * (known(ctx, grid.kernel[i]) - 1);
    const std::int64_t start = reach - grid.pads[i];
    const std::int64_t end = reach - grid.pads[count + i] + output_padding[i] - (grid.stride[i] - 1);
    inverse.pads[i] = std::max<std::int64_t>(start, 0);
    inverse.pads[count + i] = std::max<std::int64_t>(end, 0);
    cuts[i] = {std::min<std::int64_t>(start, 0), std::min<std::int64_t>(end, 0)};
  }

  for (std::size_t i = 0; i < count; ++i) {
    const auto axis = static_cast<std::int64_t>(i) + 2;
    const auto [start, end] = cuts[i];
    if (start != 0 || end != 0) x = ctx.slice(x, axis, -start, add(ctx, size_of(ctx, x, axis), end));
  }
  return convolved(ctx, {x, weight_of_inverse(ctx, operands.at(1), groups), operands.at(2)}, inverse, groups);
}

}  // namespace exportguard::lowering
