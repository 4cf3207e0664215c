#pragma once

#include <optional>
#include <span>
#include <vector>

#include "exportguard/validation/comparison.h"
#include "validation/cuda_kernels.h"

// The kernels lie in a library of their own, libexportguard_cuda.so beside this one, which is opened when it is first
// asked for: a build without nvcc, or a machine without a driver, has no devices.
namespace exportguard::validation::cuda {

int device_count();

/// The CUDA device on which every tensor of every pair lies, if the kernels can read all of their dtypes.
std::optional<int> common_device(std::span<const Pair> pairs);

/// @throws Error with CUDA's own text if the launch fails.
std::vector<DeviceResult> compare(std::span<const Pair> pairs, int device);

}  // namespace exportguard::validation::cuda
