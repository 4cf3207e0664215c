#include <algorithm>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/kernels.h"
#include "lowering/moments.h"
#include "lowering/nan_in_windows.h"
#include "lowering/reductions.h"
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

/// The windows of one axis: from floor(i from / to) up to ceil((i + 1) from / to).
struct Windows {
  Value* positions;   ///< int64[to, longest]; behind a window's end its last element again
  Value* is_element;  ///< bool[to, longest]
  Value* counts;      ///< int64[to, 1]
};

Windows windows_of_axis(LoweringContext& ctx, const Size& from, const Size& to) {
  Value* count = as_scalar(ctx, from);
  Value* windows = as_scalar(ctx, maximum(ctx, to, 1));  // a result of none divides by it as well
  Value* one = ctx.constant(1, DType::kInt64);
  const auto rounded_up = [&](Value* product) {
    return ctx.op("Div", {ctx.op("Add", {product, ctx.op("Sub", {windows, one})}), windows});
  };
  Value* index = ctx.unsqueeze(range(ctx, to), {1});
  Value* start = ctx.op("Div", {ctx.op("Mul", {index, count}), windows});
  Value* end = rounded_up(ctx.op("Mul", {ctx.op("Add", {index, one}), count}));

  Value* longest = ctx.op("Add", {rounded_up(count), one});
  Value* places = ctx.op("Add", {start, range(ctx, ctx.scalar_as_dim(longest))});
  Value* last = ctx.op("Sub", {end, one});
  return {ctx.op("Min", {places, last}), ctx.op("Less", {places, end}), ctx.op("Sub", {end, start})};
}

bool is_same_size(const Size& a, const Size& b) { return a.number() && a.number() == b.number(); }

/// A tensor of the windows of one axis to broadcast with what was gathered there: [to, longest, 1, …].
Value* with_axes_behind(LoweringContext& ctx, Value* of_windows, const Value* gathered, std::int64_t axis) {
  Numbers behind;
  for (auto i = axis + 2; i < static_cast<std::int64_t>(ctx.rank(gathered)); ++i) behind.push_back(i - axis);
  return ctx.unsqueeze(of_windows, behind);
}

/// The mean over each window of one axis; an element counts in its windows alone, were it infinite.
Value* average_axis(LoweringContext& ctx, Value* x, std::int64_t axis, const Size& to) {
  const Size from = size_of(ctx, x, axis);
  if (is_same_size(from, to)) return x;
  const Windows windows = windows_of_axis(ctx, from, to);
  Value* gathered = ctx.gather(x, windows.positions, axis);
  Value* is_element = with_axes_behind(ctx, windows.is_element, gathered, axis);
  Value* parts = ctx.where(is_element, gathered, ctx.number_like(0, x));
  Value* counts = with_axes_behind(ctx, ctx.cast(windows.counts, x->dtype()), gathered, axis);
  return ctx.op("Div", {ctx.reduce("ReduceSum", parts, {axis + 1}, false), ctx.squeeze(counts, {1})});
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
  const Windows windows = windows_of_axis(ctx, size_of(ctx, maxima.values, axis), to);
  Value* gathered = ctx.gather(maxima.values, windows.positions, axis);
  Value* values = extreme_value(ctx, gathered, Extreme::kLargest, {{axis + 1}, false});
  if (maxima.positions == nullptr) return {values, nullptr};
  Value* index = extreme_index(ctx, gathered, Extreme::kLargest, axis + 1, true);
  Value* positions = ctx.gather(maxima.positions, windows.positions, axis);
  Value* found = ctx.op("GatherElements", {positions, index}, {{"axis", axis + 1}});
  return {values, ctx.squeeze(found, {axis + 1})};
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
    return ctx.result(mean(ctx, ctx.widened(pooling.x), {axes, true}));
  }
  const Numbers windows = even_windows(ctx, pooling);
  const bool is_even = !windows.empty() && !lacks_double(ctx, "AveragePool", pooling.x->dtype());
  ctx.result(!is_even ? average_each_axis(ctx, pooling) : pool_evenly(ctx, "AveragePool", pooling, windows).front());
}

Adaptive with_places_of_nan(LoweringContext& ctx, Adaptive pooling) {
  pooling.x = places_of_nan(ctx, pooling.x, ctx.rank(pooling.x) - pooling.first);
  return pooling;
}

void lower_adaptive_max_pool(LoweringContext& ctx) {
  const Adaptive pooling = adaptive_of(ctx);
  const Numbers windows = even_windows(ctx, pooling);
  if (windows.empty()) {
    const bool wants_positions = !ctx.node().output(1).is_unused();
    const Maxima maxima = largest_of_each_axis(ctx, pooling, wants_positions);
    if (!wants_positions || !is_floating(pooling.x->dtype())) return ctx.results({maxima.values, maxima.positions});
    const Maxima last = largest_of_each_axis(ctx, with_places_of_nan(ctx, pooling), false);
    const PooledMaxima found = with_nan(ctx, {maxima.values, maxima.positions}, last.values);
    return ctx.results({found.values, found.places});
  }
  auto results = pool_evenly(ctx, "MaxPool", pooling, windows);
  Value* channel = as_scalar(ctx, merged_size(ctx, pooling.x, pooling.first, ctx.rank(pooling.x)));
  PooledMaxima found = {results[0], ctx.op("Mod", {results[1], channel})};
  if (is_floating(pooling.x->dtype())) {
    found = with_nan(ctx, found, pool_evenly(ctx, "MaxPool", with_places_of_nan(ctx, pooling), windows).front());
  }
  ctx.results({found.values, found.places});
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
