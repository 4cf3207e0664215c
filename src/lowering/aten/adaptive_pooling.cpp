#include <algorithm>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/contraction.h"
#include "lowering/dtype_limits.h"
#include "lowering/kernels.h"
#include "lowering/moments.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

using Numbers = std::vector<std::int64_t>;

/// The spatial axes are the last ones; `sizes` are those of the result.
struct Adaptive {
  Value* x;
  std::vector<Size> sizes;
  std::size_t first;  ///< spatial axis
};

Adaptive adaptive_of(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  std::vector<Size> sizes = ctx.sizes(1);
  const std::size_t first = ctx.rank(x) - sizes.size();
  return {x, std::move(sizes), first};
}

bool is_global(const Adaptive& pooling) {
  return std::ranges::all_of(pooling.sizes, [](const Size& size) { return size.number() == 1; });
}

/// Windows of the same size side by side, if every size is known and divided by the result's; else nothing.
Numbers even_windows(LoweringContext& ctx, const Adaptive& pooling) {
  Numbers windows;
  for (std::size_t i = 0; i < pooling.sizes.size(); ++i) {
    const auto from = ctx.size(pooling.x, static_cast<std::int64_t>(pooling.first + i)).constant();
    const auto to = pooling.sizes[i].number();
    if (!from || !to || *to == 0 || *from % *to != 0) return {};
    windows.push_back(*from / *to);
  }
  return windows;
}

/// Calls an ONNX pooling operator, which wants a batch.
std::vector<Value*> pool_evenly(LoweringContext& ctx, std::string_view op, const Adaptive& pooling,
                                const Numbers& windows) {
  const bool is_batched = pooling.first == 2;
  Value* x = ctx.cast(pooling.x, kernel_dtype(ctx, op, pooling.x->dtype()));
  const std::size_t outputs = op == "MaxPool" ? 2 : 1;
  auto results = ctx.op_many(op, {is_batched ? x : ctx.unsqueeze(x, {0})}, outputs,
                             {{"kernel_shape", windows}, {"strides", windows}});
  if (!is_batched) {
    for (Value*& result : results) result = ctx.squeeze(result, {0});
  }
  return results;
}

// ------------------------------------------------------------------------------------------------ uneven windows

/// Bool [to, from]: which elements window i covers, floor(i from / to) up to ceil((i + 1) from / to).
Value* window_masks(LoweringContext& ctx, const Size& from, const Size& to) {
  Value* count = as_scalar(ctx, from);
  Value* windows = as_scalar(ctx, to);
  Value* index = ctx.unsqueeze(range(ctx, to), {1});
  Value* start = ctx.op("Div", {ctx.op("Mul", {index, count}), windows});
  Value* next = ctx.op("Mul", {ctx.op("Add", {index, ctx.constant(1, DType::kInt64)}), count});
  Value* rounding = ctx.op("Sub", {windows, ctx.constant(1, DType::kInt64)});
  Value* end = ctx.op("Div", {ctx.op("Add", {next, rounding}), windows});
  Value* positions = range(ctx, from);
  return ctx.op("And", {ctx.op("GreaterOrEqual", {positions, start}), ctx.op("Less", {positions, end})});
}

bool is_same_size(const Size& a, const Size& b) { return a.number() && a.number() == b.number(); }

/// The mean over each window of one axis: a product with a matrix of weights.
Value* average_axis(LoweringContext& ctx, Value* x, std::int64_t axis, const Size& to) {
  const Size from = size_of(ctx, x, axis);
  if (is_same_size(from, to)) return x;
  Value* weights = ctx.cast(window_masks(ctx, from, to), x->dtype());
  Value* count = ctx.reduce("ReduceSum", weights, {1}, true);
  Value* matrix = ctx.swap_axes(ctx.op("Div", {weights, count}), 0, 1);
  Value* moved = ctx.swap_axes(x, axis, -1);
  if (!departs(ctx, Departure::kTransposedEmptyProduct)) return ctx.swap_axes(matmul(ctx, moved, matrix), axis, -1);
  std::vector<Size> sizes = ctx.sizes_of(moved);
  Value* rows = ctx.reshape(moved, {merged_size(ctx, moved, 0, sizes.size() - 1), from});
  sizes.back() = to;
  return ctx.swap_axes(ctx.reshape(matmul(ctx, rows, matrix), sizes), axis, -1);
}

Value* average_each_axis(LoweringContext& ctx, const Adaptive& pooling) {
  Value* y = ctx.widened(pooling.x);
  for (std::size_t i = 0; i < pooling.sizes.size(); ++i) {
    y = average_axis(ctx, y, static_cast<std::int64_t>(pooling.first + i), pooling.sizes[i]);
  }
  return y;
}

/// Values and their positions on the axes so far, counted within a channel.
struct Maxima {
  Value* values;
  Value* positions;  ///< null: none wanted
};

/// The largest of each window of one axis, and the position of the first of them.
Maxima largest_on_axis(LoweringContext& ctx, const Maxima& maxima, std::int64_t axis, const Size& to) {
  const Size from = size_of(ctx, maxima.values, axis);
  const auto rank = static_cast<std::int64_t>(ctx.rank(maxima.values));
  Value* rows = ctx.unsqueeze(ctx.swap_axes(maxima.values, axis, -1), {rank - 1});  // [..., 1, from]
  Value* windows = ctx.where(window_masks(ctx, from, to), rows, lowest(ctx, rows->dtype()));
  Value* values = kernel_reduce(ctx, "ReduceMax", windows, {rank}, false);
  values = ctx.swap_axes(values, axis, -1);
  if (maxima.positions == nullptr) return {values, nullptr};
  Value* index = kernel_op(ctx, "ArgMax", {windows}, {{"axis", rank}, {"keepdims", 0}});
  index = ctx.swap_axes(index, axis, -1);
  return {values, ctx.op("GatherElements", {maxima.positions, index}, {{"axis", axis}})};
}

/// Every element's position within its channel.
Value* positions_in_channel(LoweringContext& ctx, const Adaptive& pooling) {
  const std::size_t rank = ctx.rank(pooling.x);
  std::vector<Size> spatial;
  for (std::size_t axis = pooling.first; axis < rank; ++axis) {
    spatial.push_back(size_of(ctx, pooling.x, static_cast<std::int64_t>(axis)));
  }
  Value* numbers = ctx.reshape(range(ctx, merged_size(ctx, pooling.x, pooling.first, rank)), spatial);
  return ctx.expand(numbers, ctx.sizes_of(pooling.x));
}

/// Last axis first, so that of equal values the first one in memory wins, as in torch.
Maxima largest_of_each_axis(LoweringContext& ctx, const Adaptive& pooling, bool wants_positions) {
  Maxima maxima = {pooling.x, wants_positions ? positions_in_channel(ctx, pooling) : nullptr};
  for (std::size_t i = pooling.sizes.size(); i-- > 0;) {
    maxima = largest_on_axis(ctx, maxima, static_cast<std::int64_t>(pooling.first + i), pooling.sizes[i]);
  }
  return maxima;
}

// ------------------------------------------------------------------------------------------------ rows

void lower_adaptive_avg_pool(LoweringContext& ctx) {
  const Adaptive pooling = adaptive_of(ctx);
  if (is_global(pooling)) {
    const auto axes = axes_between(pooling.first, ctx.rank(pooling.x));
    return ctx.result(kernel_reduce(ctx, "ReduceMean", ctx.widened(pooling.x), axes, true));
  }
  const Numbers windows = even_windows(ctx, pooling);
  ctx.result(windows.empty() ? average_each_axis(ctx, pooling)
                             : pool_evenly(ctx, "AveragePool", pooling, windows).front());
}

void lower_adaptive_max_pool(LoweringContext& ctx) {
  const Adaptive pooling = adaptive_of(ctx);
  const Numbers windows = even_windows(ctx, pooling);
  if (windows.empty()) {
    const bool wants_positions = !ctx.node().output(1).is_unused();
    const Maxima maxima = largest_of_each_axis(ctx, pooling, wants_positions);
    return ctx.results({maxima.values, maxima.positions});
  }
  auto results = pool_evenly(ctx, "MaxPool", pooling, windows);
  Value* channel = as_scalar(ctx, merged_size(ctx, pooling.x, pooling.first, ctx.rank(pooling.x)));
  results[1] = ctx.op("Mod", {results[1], channel});
  ctx.results(results);
}

}  // namespace

void populate_adaptive_pooling(LoweringTable& table) {
  table.add({"aten.adaptive_avg_pool1d.default", "aten.adaptive_avg_pool2d.default", "aten.adaptive_avg_pool3d.default",
             "aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default"},
            lower_adaptive_avg_pool);
  table.add(
      {"aten.adaptive_max_pool1d.default", "aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default"},
      lower_adaptive_max_pool);
}

}  // namespace exportguard::lowering
