#pragma once

#include <vector>

#include "exportguard/ir/inference.h"

namespace exportguard::ir {

/// How a window moves over the spatial axes of `[batch, channels, …]`: the attributes that convolutions and pools
/// share.
struct Windows {
  std::vector<std::int64_t> strides;
  std::vector<std::int64_t> dilations;
  std::vector<std::int64_t> pads;  ///< those in front, then those behind
  std::string_view auto_pad;
  bool rounds_up = false;  ///< ceil_mode
};

/// @throws GraphError for an attribute of another length than the spatial axes, or a stride below 1.
Windows read_windows(const InferenceContext& ctx, std::size_t spatial_axes);

/// How many windows of size `kernel` there are along spatial axis `i`.
Dim window_count(const InferenceContext& ctx, const Windows& windows, std::size_t i, const Dim& size,
                 const Dim& kernel);

}  // namespace exportguard::ir
