#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evaluator/call.h"

namespace exportguard::evaluator {

/// How a window moves over the spatial axes of a convolution or pooling, one entry for each axis.
struct Windows {
  std::vector<std::int64_t> kernel;
  std::vector<std::int64_t> strides;
  std::vector<std::int64_t> dilations;
  std::vector<std::int64_t> before;  ///< padding
  std::vector<std::int64_t> after;

  std::size_t rank() const { return kernel.size(); }
  std::int64_t extent(std::size_t i) const { return (kernel[i] - 1) * dilations[i] + 1; }
};

/// From the attributes kernel_shape (or `kernel`), strides, dilations, pads and auto_pad, for an input [N, C,
/// sizes...]. Fails for numbers that make no window.
Windows windows_of(const Call& call, at::IntArrayRef input, std::vector<std::int64_t> kernel);

/// Pads the spatial axes, the first one being axis 2. Fails for more than the machine can hold.
at::Tensor padded(const Call& call, const at::Tensor& x, const Windows& windows, const at::Scalar& value);

}  // namespace exportguard::evaluator
