// Pooling over windows of any rank: each window is a view, reduced over its own axes.
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"
#include "evaluator/windows.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;
using Sizes = std::vector<std::int64_t>;

std::int64_t spatial(std::size_t i) { return static_cast<std::int64_t>(i) + 2; }

// With ceil_mode a last window that is not whole counts, unless it starts in the padding behind.
Windows with_ceiling(const Call& call, Windows windows, at::IntArrayRef input) {
  if (!call.flag("ceil_mode")) return windows;
  for (std::size_t i = 0; i < windows.rank(); ++i) {
    const std::int64_t size = input[i + 2];
    const std::int64_t room = size + windows.before[i] + windows.after[i] - windows.extent(i);
    std::int64_t count = (room + windows.strides[i] - 1) / windows.strides[i] + 1;
    if ((count - 1) * windows.strides[i] >= size + windows.before[i]) --count;
    const std::int64_t missing = (count - 1) * windows.strides[i] - room;
    windows.after[i] += std::max<std::int64_t>(missing, 0);
  }
  return windows;
}

// [N, C, outputs..., kernel...], a view of `x`.
Tensor views(const Call& call, const Tensor& x, const Windows& windows) {
  Tensor result = x;
  for (std::size_t i = 0; i < windows.rank(); ++i) {
    call.require(x.size(spatial(i)) >= windows.extent(i), "the window is larger than the input");
    result = result.unfold(spatial(i), windows.extent(i), windows.strides[i])
                 .slice(-1, 0, std::nullopt, windows.dilations[i]);
  }
  return result;
}

Sizes last_axes(std::size_t count) {
  Sizes axes(count);
  std::iota(axes.begin(), axes.end(), -static_cast<std::int64_t>(count));
  return axes;
}

Windows pool_windows(const Call& call, const Tensor& x) {
  return with_ceiling(call, windows_of(call, x.sizes(), call.integers("kernel_shape")), x.sizes());
}

// ---------------------------------------------------------------- MaxPool

at::Scalar least(c10::ScalarType type) {
  if (type == at::kByte) return 0;
  return type == at::kChar ? at::Scalar(std::numeric_limits<std::int8_t>::min())
                           : at::Scalar(-std::numeric_limits<double>::infinity());
}

// Where in the input each window's largest element stands, counted over the whole tensor; `storage_order` 1 counts
// columns first.
Tensor positions(const Call& call, const Tensor& x, const Windows& windows, const Tensor& within) {
  const auto options = at::TensorOptions(at::kLong).device(x.device());
  const bool is_column_major = call.flag("storage_order");
  Sizes order(windows.rank());
  std::iota(order.begin(), order.end(), 0);
  if (!is_column_major) std::ranges::reverse(order);

  Sizes coordinates_step(windows.rank());
  std::int64_t step = 1;
  for (const std::int64_t i : order) {
    coordinates_step[static_cast<std::size_t>(i)] = step;
    step *= x.size(i + 2);
  }

  const Tensor planes = at::arange(x.size(0) * x.size(1), options).mul(step);
  Sizes view(static_cast<std::size_t>(within.dim()), 1);
  view[0] = x.size(0);
  view[1] = x.size(1);
  Tensor result = planes.reshape(view);
  Tensor rest = within;
  for (std::size_t i = windows.rank(); i-- > 0;) {
    Sizes axis(static_cast<std::size_t>(within.dim()), 1);
    axis[i + 2] = within.size(spatial(i));
    const Tensor start = at::arange(within.size(spatial(i)), options).mul(windows.strides[i]).sub(windows.before[i]);
    const Tensor inside = rest.remainder(windows.kernel[i]).mul(windows.dilations[i]);
    result = result.add(inside.add(start.reshape(axis)).mul(coordinates_step[i]));
    rest = rest.floor_divide(windows.kernel[i]);
  }
  return result;
}

void run_max_pool(Call& call) {
  const Tensor& x = call.input(0);
  const Windows windows = pool_windows(call, x);
  const Tensor all = views(call, padded(x, windows, least(x.scalar_type())), windows);
  call.result(at::amax(all, last_axes(windows.rank())));
  if (!call.wants(1)) return;
  call.result(positions(call, x, windows, all.flatten(-static_cast<std::int64_t>(windows.rank())).argmax(-1)));
}

void run_max_unpool(Call& call) {
  const Tensor& x = call.input(0);
  const Windows windows = windows_of(call, x.sizes(), call.integers("kernel_shape"));
  Sizes sizes{x.size(0), x.size(1)};
  for (std::size_t i = 0; i < windows.rank(); ++i) {
    sizes.push_back((x.size(spatial(i)) - 1) * windows.strides[i] - windows.before[i] - windows.after[i] +
                    windows.kernel[i]);
  }

  const Sizes inferred = sizes;
  if (call.has(2)) sizes = call.ints(2);
  call.require(sizes.size() == inferred.size(), "output_shape is of another rank");
  call.require_room(sizes);

  const Tensor indices = call.input(1).reshape({-1});
  const std::int64_t count = std::accumulate(inferred.begin(), inferred.end(), std::int64_t{1}, std::multiplies<>());
  call.require(indices.numel() == x.numel(), "it needs an index for each element");
  const bool is_inside =
      indices.numel() == 0 || (indices.min().item<std::int64_t>() >= 0 && indices.max().item<std::int64_t>() < count);
  call.require(is_inside, "an index is out of range");

  const Tensor small = at::zeros({count}, x.options()).scatter(0, indices, x.reshape({-1})).reshape(inferred);
  Windows growth = windows;
  for (std::size_t i = 0; i < windows.rank(); ++i) {
    growth.before[i] = 0;
    growth.after[i] = sizes[i + 2] - inferred[i + 2];
  }
  call.result(padded(small, growth, 0));
}

// ---------------------------------------------------------------- AveragePool, LpPool

void run_average_pool(Call& call) {
  const Tensor& x = call.input(0);
  const Windows plain = windows_of(call, x.sizes(), call.integers("kernel_shape"));
  const Windows windows = with_ceiling(call, plain, x.sizes());
  const Sizes axes = last_axes(windows.rank());
  const Tensor sums = views(call, padded(raised(x), windows, 0), windows).sum(axes);
  Sizes sizes = x.sizes().vec();
  sizes[0] = sizes[1] = 1;
  Tensor counted = at::ones(sizes, sums.options());
  Windows rest = windows;
  if (call.flag("count_include_pad")) {
    counted = padded(counted, plain, 1);
    for (std::size_t i = 0; i < windows.rank(); ++i) {
      rest.before[i] -= plain.before[i];
      rest.after[i] -= plain.after[i];
    }
  }
  call.result(sums.div(views(call, padded(counted, rest, 0), windows).sum(axes)).to(x.scalar_type()));
}

void run_lp_pool(Call& call) {
  const Tensor& x = call.input(0);
  const auto p = static_cast<double>(call.integer("p", 2));
  const Windows windows = pool_windows(call, x);
  const Tensor powers = padded(raised(x).abs().pow(p), windows, 0);
  call.result(views(call, powers, windows).sum(last_axes(windows.rank())).pow(1.0 / p).to(x.scalar_type()));
}

// ---------------------------------------------------------------- the whole plane

Sizes plane_axes(const Call& call, const Tensor& x) {
  call.require(x.dim() > 2, "its input must have a spatial axis");
  return last_axes(static_cast<std::size_t>(x.dim() - 2));
}

void run_global_average_pool(Call& call) {
  const Tensor& x = call.input(0);
  call.result(raised(x).mean(plane_axes(call, x), true).to(x.scalar_type()));
}

void run_global_max_pool(Call& call) { call.result(at::amax(call.input(0), plane_axes(call, call.input(0)), true)); }

void run_global_lp_pool(Call& call) {
  const Tensor& x = call.input(0);
  const auto p = static_cast<double>(call.integer("p", 2));
  call.result(raised(x).abs().pow(p).sum(plane_axes(call, x), true).pow(1.0 / p).to(x.scalar_type()));
}

}  // namespace

void populate_pooling(OperatorTable& table) {
  table.add("MaxPool", run_max_pool);
  table.add("MaxUnpool", run_max_unpool);
  table.add("AveragePool", run_average_pool);
  table.add("LpPool", run_lp_pool);
  table.add("GlobalAveragePool", run_global_average_pool);
  table.add("GlobalMaxPool", run_global_max_pool);
  table.add("GlobalLpPool", run_global_lp_pool);
}

}  // namespace exportguard::evaluator
