// Pooling over windows of any rank: each window is a view, reduced over its own axes, of no more padding than is read.
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"
#include "evaluator/windows.h"
#include "exportguard/common/sizes.h"

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

std::int64_t ceiling(std::int64_t a, std::int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }
std::int64_t floor(std::int64_t a, std::int64_t b) { return -ceiling(-a, b); }

std::int64_t count_of(const Call& call, const Windows& windows, std::size_t i, std::int64_t size) {
  const std::int64_t room = size + windows.before[i] + windows.after[i] - windows.extent(i);
  call.require(room >= 0, "the window is larger than the input");
  return room / windows.strides[i] + 1;
}

// Without the places of a window that lie in the padding wherever it stands: a window may be a thousand times as large
// as the input, and the padding would be as well.
Windows trimmed(const Call& call, Windows windows, at::IntArrayRef input) {
  for (std::size_t i = 0; i < windows.rank(); ++i) {
    const std::int64_t size = input[i + 2];
    const std::int64_t count = count_of(call, windows, i, size);
    const std::int64_t step = windows.dilations[i];
    const std::int64_t last_start = (count - 1) * windows.strides[i] - windows.before[i];
    const std::int64_t first = std::clamp<std::int64_t>(ceiling(-last_start, step), 0, windows.kernel[i] - 1);
    const std::int64_t last =
        std::clamp<std::int64_t>(floor(size - 1 + windows.before[i], step), first, windows.kernel[i] - 1);
    windows.kernel[i] = last - first + 1;
    windows.before[i] -= first * step;
    windows.after[i] = last_start + first * step + windows.extent(i) - size;
  }
  return windows;
}

// [N, C, outputs..., kernel...], a view of `x`.
Tensor views(const Tensor& x, const Windows& windows) {
  Tensor result = x;
  for (std::size_t i = 0; i < windows.rank(); ++i) {
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
  const Windows windows = windows_of(call, x.sizes(), call.integers("kernel_shape"));
  return trimmed(call, with_ceiling(call, windows, x.sizes()), x.sizes());
}

// ---------------------------------------------------------------- MaxPool

at::Scalar least(c10::ScalarType type) {
  if (type == at::kByte) return 0;
  return type == at::kChar ? at::Scalar(std::numeric_limits<std::int8_t>::min())
                           : at::Scalar(-std::numeric_limits<double>::infinity());
}

/// The largest element of each window, and its place in the window, counted over the kernel.
struct Largest {
  Tensor values;
  Tensor within;
};

// Place by place, so that no more is held than the outputs. The first of equals counts; NaN is above all.
Largest largest_of(const Tensor& all, std::size_t rank) {
  const std::int64_t first_axis = all.dim() - static_cast<std::int64_t>(rank);
  Sizes place(rank, 0);
  Largest largest;
  for (std::int64_t number = 0;; ++number) {
    Tensor candidate = all;
    for (std::size_t i = rank; i-- > 0;)
      candidate = candidate.select(first_axis + static_cast<std::int64_t>(i), place[i]);
    if (number == 0) {
      largest = {candidate.clone(at::MemoryFormat::Contiguous),
                 at::zeros(candidate.sizes(), candidate.options().dtype(at::kLong))};
    } else {
      const Tensor is_larger =
          candidate.gt(largest.values).logical_or_(candidate.isnan().logical_and(largest.values.isnan().logical_not()));
      largest.values = at::where(is_larger, candidate, largest.values);
      largest.within.masked_fill_(is_larger, number);
    }
    std::size_t axis = rank;
    while (axis > 0 && ++place[axis - 1] == all.size(first_axis + static_cast<std::int64_t>(axis) - 1))
      place[--axis] = 0;
    if (axis == 0) return largest;
  }
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
  const Tensor all = views(padded(call, x, windows, least(x.scalar_type())), windows);
  if (!call.wants(1)) return call.result(at::amax(all, last_axes(windows.rank())));
  const Largest largest = largest_of(all, windows.rank());
  call.result(largest.values);
  call.result(positions(call, x, windows, largest.within));
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
  call.require_room(inferred);
  if (call.has(2)) sizes = call.ints(2);
  call.require(sizes.size() == inferred.size(), "output_shape is of another rank");
  call.require_room(sizes);

  const Tensor indices = call.input(1).reshape({-1});
  const std::int64_t count = element_count(inferred).value_or(0);
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
  call.result(padded(call, small, growth, 0));
}

// ---------------------------------------------------------------- AveragePool, LpPool

// How many places of each window along an axis lie in [first, end).
Tensor counted(const Windows& windows, std::size_t i, std::int64_t outputs,
               std::pair<std::int64_t, std::int64_t> range) {
  std::vector<double> counts;
  for (std::int64_t output = 0; output < outputs; ++output) {
    const std::int64_t start = output * windows.strides[i] - windows.before[i];
    const std::int64_t first = std::max<std::int64_t>(ceiling(range.first - start, windows.dilations[i]), 0);
    const std::int64_t last = std::min(floor(range.second - 1 - start, windows.dilations[i]), windows.kernel[i] - 1);
    counts.push_back(static_cast<double>(std::max<std::int64_t>(last - first + 1, 0)));
  }
  Sizes sizes(windows.rank() + 2, 1);
  sizes[i + 2] = outputs;
  return at::tensor(counts, at::kDouble).reshape(sizes);
}

void run_average_pool(Call& call) {
  const Tensor& x = call.input(0);
  const Windows plain = windows_of(call, x.sizes(), call.integers("kernel_shape"));
  const Windows whole = with_ceiling(call, plain, x.sizes());
  const Windows windows = trimmed(call, whole, x.sizes());
  const Tensor sums = views(padded(call, raised(x), windows, 0), windows).sum(last_axes(windows.rank()));

  Tensor counts = at::ones({}, at::kDouble);
  const bool includes_pads = call.flag("count_include_pad");
  for (std::size_t i = 0; i < windows.rank(); ++i) {
    const std::int64_t size = x.size(spatial(i));
    const auto range =
        includes_pads ? std::pair(-plain.before[i], size + plain.after[i]) : std::pair(std::int64_t{0}, size);
    counts = counts.mul(counted(whole, i, sums.size(spatial(i)), range));
  }
  call.result(sums.div(counts.to(sums.options())).to(x.scalar_type()));
}

void run_lp_pool(Call& call) {
  const Tensor& x = call.input(0);
  const auto p = static_cast<double>(call.integer("p", 2));
  const Windows windows = pool_windows(call, x);
  const Tensor powers = padded(call, raised(x).abs().pow(p), windows, 0);
  call.result(views(powers, windows).sum(last_axes(windows.rank())).pow(1.0 / p).to(x.scalar_type()));
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
