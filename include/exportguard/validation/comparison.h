#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "exportguard/common/dtypes.h"
#include "exportguard/ir/tensor.h"

namespace exportguard::validation {

/// A value is right if it is within `absolute + relative * |expected|` of the expected one.
struct Tolerance {
  double absolute = 0.0;
  double relative = 0.0;
  friend bool operator==(const Tolerance&, const Tolerance&) = default;
};

/// The tolerance of results of that dtype, which stem from the same arithmetic in another order: a sum of n terms is
/// off by about sqrt(n) epsilon of its terms, and the errors of successive layers add up. Integers, booleans and
/// strings are exact.
Tolerance tolerance_for(DType dtype);

/// Entries of `Comparison::ulps`: entry 0 counts equal values, entry k those that are 2^(k-1) to 2^k - 1 units in the
/// last place apart, the last one all beyond.
inline constexpr std::size_t kUlpBuckets = 64;

/// What one pass over two tensors of one shape finds. Differences are those of the pairs of which both are finite.
struct Comparison {
  std::int64_t count = 0;                ///< pairs
  std::int64_t finite = 0;               ///< pairs of finite values
  std::int64_t over = 0;                 ///< finite pairs beyond the tolerance
  std::int64_t nan_mismatches = 0;       ///< pairs of which one alone is NaN
  std::int64_t infinity_mismatches = 0;  ///< pairs without NaN of which one alone is infinite, or of other signs

  double max_absolute = 0.0;
  double mean_absolute = 0.0;
  double max_relative = 0.0;                    ///< of |got - expected| / max(|expected|, 1e-12)
  double mean_relative = 0.0;                   ///< likewise
  std::optional<std::int64_t> max_absolute_at;  ///< row-major position of the first such pair; nothing without any
  std::optional<std::int64_t> max_relative_at;

  /// Distances in units in the last place of the coarser of the two dtypes; whole numbers by their difference.
  std::array<std::int64_t, kUlpBuckets> ulps{};
  double cosine = 1.0;           ///< of the angle between the two as vectors; 1 for two zero vectors, 0 for one
  double signal_to_noise = 0.0;  ///< 10 log10(sum expected^2 / sum difference^2), decibels; infinite if equal

  /// Whether every value is within the tolerance, and every NaN and infinity is where it is expected.
  bool agrees() const { return over == 0 && nan_mismatches == 0 && infinity_mismatches == 0; }
  /// The largest distance in units in the last place, rounded up to 2^k - 1.
  std::uint64_t ulps_at_most() const;
};

struct Pair {
  const ir::Tensor* expected;
  const ir::Tensor* got;
  Tolerance tolerance;
};

/// Compares each pair in one pass over the data, without temporaries, on as many threads as ATen uses; any strides,
/// and dtypes that differ (float16 against float32). Pairs that lie on one CUDA device are compared there by a single
/// launch, and only the figures travel; where the library was built without CUDA, or the two lie on different devices,
/// they are taken to the host. Float32 and narrower are subtracted in float32; sums are good to about 1e-6 of their
/// size.
/// @throws InvalidArgument if the shapes of a pair differ, or a tensor has no numbers (strings, four-bit types).
std::vector<Comparison> compare(std::span<const Pair> pairs);
Comparison compare(const ir::Tensor& expected, const ir::Tensor& got, Tolerance tolerance);

/// Whether this build has the CUDA kernels, and the machine a device for them.
bool has_cuda();

}  // namespace exportguard::validation
