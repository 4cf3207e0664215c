#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

// The arithmetic of a comparison, compiled for the host and by nvcc for the device: what runs in a kernel is tested on
// machines without one. No header of torch or of the standard containers here.
#ifdef __CUDACC__
#define EXPORTGUARD_HOST_DEVICE __host__ __device__ inline
#else
#define EXPORTGUARD_HOST_DEVICE inline
#endif

namespace exportguard::validation {

inline constexpr int kBuckets = 64;
inline constexpr double kSmallest = 1e-12;  // relative differences are to nothing smaller

/// Sums and extremes of a part of a comparison, without the histogram.
struct Figures {
  std::int64_t finite = 0;
  std::int64_t over = 0;
  std::int64_t nan_mismatches = 0;
  std::int64_t infinity_mismatches = 0;
  double max_absolute = -1.0;  // below every difference: the first one counts, a zero too
  double max_relative = -1.0;
  std::int64_t max_absolute_at = -1;
  std::int64_t max_relative_at = -1;
  double sum_absolute = 0.0;
  double sum_relative = 0.0;
  double sum_noise = 0.0;     // of difference^2
  double sum_expected = 0.0;  // of expected^2
  double sum_got = 0.0;
  double sum_product = 0.0;
};

struct Bounds {
  double absolute;
  double relative;
};

EXPORTGUARD_HOST_DEVICE void raise_to(double& largest, std::int64_t& at, double value, std::int64_t position) {
  if (value > largest || (value == largest && position < at)) {
    largest = value;
    at = position;
  }
}

/// Adds a pair of finite numbers whose difference and sizes are known.
EXPORTGUARD_HOST_DEVICE void add_finite(Figures& into, double difference, double size, double product, double got_size,
                                        const Bounds& bounds, std::int64_t position) {
  const double relative = difference / (size > kSmallest ? size : kSmallest);
  ++into.finite;
  into.over += difference > bounds.absolute + bounds.relative * size ? 1 : 0;
  raise_to(into.max_absolute, into.max_absolute_at, difference, position);
  raise_to(into.max_relative, into.max_relative_at, relative, position);
  into.sum_absolute += difference;
  into.sum_relative += relative;
  into.sum_noise += difference * difference;
  into.sum_expected += size * size;
  into.sum_got += got_size * got_size;
  into.sum_product += product;
}

/// Adds a pair of reals; returns whether both are finite.
EXPORTGUARD_HOST_DEVICE bool add_pair(Figures& into, double expected, double got, const Bounds& bounds,
                                      std::int64_t position) {
  const bool one_is_nan = expected != expected || got != got;
  if (one_is_nan) {
    into.nan_mismatches += (expected != expected) != (got != got) ? 1 : 0;
    return false;
  }
  if (std::isinf(expected) || std::isinf(got)) {
    into.infinity_mismatches += expected == got ? 0 : 1;
    return false;
  }
  add_finite(into, std::fabs(got - expected), std::fabs(expected), expected * got, std::fabs(got), bounds, position);
  return true;
}

/// Adds a pair of whole numbers, whose difference is exact; the numbers are `offset` more than given.
EXPORTGUARD_HOST_DEVICE void add_integer_pair(Figures& into, std::int64_t expected, std::int64_t got,
                                              std::uint64_t distance, double offset, const Bounds& bounds,
                                              std::int64_t position) {
  const double want = static_cast<double>(expected) + offset;
  const double have = static_cast<double>(got) + offset;
  add_finite(into, static_cast<double>(distance), std::fabs(want), want * have, std::fabs(have), bounds, position);
}

EXPORTGUARD_HOST_DEVICE void merge(Figures& into, const Figures& other) {
  into.finite += other.finite;
  into.over += other.over;
  into.nan_mismatches += other.nan_mismatches;
  into.infinity_mismatches += other.infinity_mismatches;
  if (other.max_absolute_at >= 0) {
    raise_to(into.max_absolute, into.max_absolute_at, other.max_absolute, other.max_absolute_at);
    raise_to(into.max_relative, into.max_relative_at, other.max_relative, other.max_relative_at);
  }
  into.sum_absolute += other.sum_absolute;
  into.sum_relative += other.sum_relative;
  into.sum_noise += other.sum_noise;
  into.sum_expected += other.sum_expected;
  into.sum_got += other.sum_got;
  into.sum_product += other.sum_product;
}

/// Squares of sizes between these are normal float32 numbers, those of differences of one epsilon of them are not zero.
inline constexpr float kLargestFloat = 1e15F;
inline constexpr float kLeastFloat = 1e-12F;

/// What at most a few hundred pairs of float32 add up to, in float32: most devices have few units for float64.
struct FloatFigures {
  std::int32_t finite = 0;
  std::int32_t over = 0;
  float max_absolute = -1.0F;
  float max_relative = -1.0F;
  std::int32_t max_absolute_at = -1;  // from where the pairs begin
  std::int32_t max_relative_at = -1;
  float sum_absolute = 0.0F;
  float sum_relative = 0.0F;
  float sum_noise = 0.0F;
  float sum_expected = 0.0F;
  float sum_got = 0.0F;
  float sum_product = 0.0F;
};

/// Whether sums of their squares are for float32; false for NaN and infinities.
EXPORTGUARD_HOST_DEVICE bool is_for_float(float expected, float got) {
  const float size = std::fabs(expected);
  const float other = std::fabs(got);
  const float wider = size > other ? size : other;
  return size < kLargestFloat && other < kLargestFloat && (wider == 0.0F || wider >= kLeastFloat);
}

/// Adds a pair for which `is_for_float`; of equal differences the first one added counts.
EXPORTGUARD_HOST_DEVICE void add_float_pair(FloatFigures& into, float expected, float got, const Bounds& bounds,
                                            std::int32_t at) {
  const float size = std::fabs(expected);
  const float difference = std::fabs(got - expected);
  const float least = static_cast<float>(kSmallest);
  const float relative = difference / (size > least ? size : least);
  ++into.finite;
  into.over += difference > static_cast<float>(bounds.absolute) + static_cast<float>(bounds.relative) * size ? 1 : 0;
  if (difference > into.max_absolute) {
    into.max_absolute = difference;
    into.max_absolute_at = at;
  }
  if (relative > into.max_relative) {
    into.max_relative = relative;
    into.max_relative_at = at;
  }
  into.sum_absolute += difference;
  into.sum_relative += relative;
  into.sum_noise += difference * difference;
  into.sum_expected += expected * expected;
  into.sum_got += got * got;
  into.sum_product += expected * got;
}

/// Adds what was summed in float32 of pairs that begin at `begin`.
EXPORTGUARD_HOST_DEVICE void take_over(Figures& into, const FloatFigures& few, std::int64_t begin) {
  if (few.finite == 0) return;
  into.finite += few.finite;
  into.over += few.over;
  raise_to(into.max_absolute, into.max_absolute_at, static_cast<double>(few.max_absolute), begin + few.max_absolute_at);
  raise_to(into.max_relative, into.max_relative_at, static_cast<double>(few.max_relative), begin + few.max_relative_at);
  into.sum_absolute += static_cast<double>(few.sum_absolute);
  into.sum_relative += static_cast<double>(few.sum_relative);
  into.sum_noise += static_cast<double>(few.sum_noise);
  into.sum_expected += static_cast<double>(few.sum_expected);
  into.sum_got += static_cast<double>(few.sum_got);
  into.sum_product += static_cast<double>(few.sum_product);
}

/// A floating-point format, for distances in units in its last place: neighbours have neighbouring keys. Values are
/// held in a wider type whose fraction has `shift` more bits; the wide type's numbers below `smallest_normal` are
/// spaced evenly in the format, `per_unit` to one.
struct UlpScale {
  int shift = 0;
  std::int64_t base = 0;  // what the wide type's key has in front of the format's
  double smallest_normal = 0.0;
  double per_unit = 0.0;
};

EXPORTGUARD_HOST_DEVICE std::int64_t bits_of(double value) {
  std::int64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

EXPORTGUARD_HOST_DEVICE std::int64_t bits_of(float value) {
  std::int32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

/// The ordinal of a value in its format: 0 for both zeros, negative below. `T` is float or double.
template <typename T>
EXPORTGUARD_HOST_DEVICE std::int64_t key_of(T value, const UlpScale& scale) {
  const T size = value < 0 ? -value : value + T{0};  // a negative zero becomes one without its sign
  const std::int64_t key = size < static_cast<T>(scale.smallest_normal)
                               ? static_cast<std::int64_t>(size * static_cast<T>(scale.per_unit))
                               : (bits_of(size) >> scale.shift) - scale.base;
  return value < 0 ? -key : key;
}

EXPORTGUARD_HOST_DEVICE std::uint64_t distance_of(std::int64_t a, std::int64_t b) {
  return a > b ? static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b)
               : static_cast<std::uint64_t>(b) - static_cast<std::uint64_t>(a);
}

/// The entry of the histogram: the number of bits of the distance.
EXPORTGUARD_HOST_DEVICE int bucket_of(std::uint64_t distance) {
#ifdef __CUDA_ARCH__
  const int bits = 64 - __clzll(static_cast<long long>(distance));
#else
  const int bits = distance == 0 ? 0 : 64 - __builtin_clzll(distance);
#endif
  return bits < kBuckets ? bits : kBuckets - 1;
}

}  // namespace exportguard::validation
