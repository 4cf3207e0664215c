#include "evaluator/windows.h"

#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>
#include <cstdlib>

namespace exportguard::evaluator {
namespace {

// So much that the outputs are as many as the input divided by the stride; an odd rest goes behind, or in front.
void pad_same(Windows& windows, at::IntArrayRef input, bool is_lower) {
  for (std::size_t i = 0; i < windows.rank(); ++i) {
    const std::int64_t size = input[i + 2];
    const std::int64_t count = (size + windows.strides[i] - 1) / windows.strides[i];
    const std::int64_t total = std::max<std::int64_t>((count - 1) * windows.strides[i] + windows.extent(i) - size, 0);
    windows.before[i] = is_lower ? total - total / 2 : total / 2;
    windows.after[i] = total - windows.before[i];
  }
}

bool are_positive(const std::vector<std::int64_t>& numbers) {
  return std::ranges::all_of(numbers, [](std::int64_t number) { return number > 0 && number < (1 << 30); });
}

}  // namespace

Windows windows_of(const Call& call, at::IntArrayRef input, std::vector<std::int64_t> kernel) {
  call.require(input.size() >= 3 && kernel.size() + 2 == input.size(), "the kernel does not fit the input's rank");
  const std::size_t rank = kernel.size();
  const std::vector<std::int64_t> ones(rank, 1);
  Windows windows{std::move(kernel), call.integers("strides", ones), call.integers("dilations", ones), {}, {}};
  const std::vector<std::int64_t> pads = call.integers("pads", std::vector<std::int64_t>(2 * rank, 0));
  const bool is_whole = windows.strides.size() == rank && windows.dilations.size() == rank && pads.size() == 2 * rank;
  call.require(is_whole, "strides, dilations and pads must have an entry for each axis");
  const bool has_window =
      are_positive(windows.kernel) && are_positive(windows.strides) && are_positive(windows.dilations);
  call.require(has_window, "kernel, strides and dilations must be positive");
  const bool has_bounds = std::ranges::all_of(pads, [](std::int64_t pad) { return std::abs(pad / 2) < (1 << 30); });
  call.require(has_bounds, "pads must be less than 2^31");
  windows.before.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(rank));
  windows.after.assign(pads.begin() + static_cast<std::ptrdiff_t>(rank), pads.end());

  const std::string automatic = call.text("auto_pad", "NOTSET");
  if (automatic == "VALID") windows.before = windows.after = std::vector<std::int64_t>(rank, 0);
  if (automatic.starts_with("SAME")) pad_same(windows, input, automatic == "SAME_LOWER");
  return windows;
}

at::Tensor padded(const Call& call, const at::Tensor& x, const Windows& windows, const at::Scalar& value) {
  std::vector<std::int64_t> pads;  // from the last axis on
  std::vector<std::int64_t> sizes = x.sizes().vec();
  bool has_any = false;
  for (std::size_t i = windows.rank(); i-- > 0;) {
    pads.insert(pads.end(), {windows.before[i], windows.after[i]});
    sizes[i + 2] += windows.before[i] + windows.after[i];
    has_any = has_any || windows.before[i] != 0 || windows.after[i] != 0;
  }
  if (!has_any) return x;
  call.require_room(sizes);
  return at::constant_pad_nd(x, pads, value);
}

}  // namespace exportguard::evaluator
