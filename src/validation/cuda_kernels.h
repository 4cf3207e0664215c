#pragma once

#include <cstddef>
#include <cstdint>

#include "validation/figures.h"

// What the library of CUDA kernels offers: plain C, so that the core opens it at run time and neither links cudart nor
// needs a driver. Shared by both sides.
namespace exportguard::validation::cuda {

/// Element types that the kernels read.
enum class Element : std::int32_t {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUint8,
  kBool
};

/// Two dense tensors of one length on the device.
struct DevicePair {
  const void* expected;
  const void* got;
  std::int64_t count;
  Element expected_element;
  Element got_element;
  Bounds bounds;
  UlpScale scale;
  std::int32_t in_double;  ///< distances in units of float64, or of whole numbers; else of what `scale` says
  std::int32_t in_integers;
};

struct DeviceResult {
  Figures figures;
  std::int64_t ulps[kBuckets];
};

/// Devices that can be used; 0 without a driver.
using DeviceCount = int();
/// Compares all pairs in one launch on that device and waits for it. Returns null, or what CUDA says is wrong.
using ComparePairs = const char*(const DevicePair* pairs, std::size_t count, int device, DeviceResult* results);

}  // namespace exportguard::validation::cuda
