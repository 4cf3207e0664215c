#include "validation/lanes_avx512.h"

#ifdef EXPORTGUARD_AVX512

#include <algorithm>
#include <bit>

// GCC 12's own headers leave the lanes that a conversion does not use unset, and warn of it.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace exportguard::validation::avx512 {

bool is_supported() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
}

namespace {

#define EXPORTGUARD_AVX512_INLINE EXPORTGUARD_AVX512_CODE __attribute__((always_inline)) inline

constexpr std::size_t kAtOnce = 4;  // vectors, whose buckets fill one vector of bytes
constexpr int kCountedAtOnce = 8;   // buckets, each in a register with a byte for each lane
constexpr char kNotCounted = 127;   // is no number of zeros
static_assert(kBlock / kLanes / kAtOnce < 255, "a byte counts no further");

// Without initial values: the compiler's own constructors would not have the instructions.
struct Sums {
  __m512 max_relative;
  __m512 absolute, relative, noise, expected, got, product;
  __m512i max_absolute_bits, max_size_bits, over;
};

EXPORTGUARD_AVX512_INLINE Sums no_sums() {
  const __m512 zero = _mm512_setzero_ps();
  const __m512i none = _mm512_setzero_si512();
  return {zero, zero, zero, zero, zero, zero, zero, none, none, none};
}

// ------------------------------------------------------------------------------------------------ units in the last
// place

EXPORTGUARD_AVX512_INLINE __m512i keys_of(__m512 value, const UlpScale& scale) {
  const __m512 size = _mm512_abs_ps(value);
  const __m512i shifted = _mm512_srl_epi32(_mm512_castps_si512(size), _mm_cvtsi32_si128(scale.shift));
  __m512i keys = _mm512_sub_epi32(shifted, _mm512_set1_epi32(static_cast<int>(scale.base)));
  if (scale.smallest_normal > 0) {
    const __m512 units = _mm512_mul_ps(size, _mm512_set1_ps(static_cast<float>(scale.per_unit)));
    const __mmask16 is_subnormal =
        _mm512_cmp_ps_mask(size, _mm512_set1_ps(static_cast<float>(scale.smallest_normal)), _CMP_LT_OQ);
    keys = _mm512_mask_blend_epi32(is_subnormal, keys, _mm512_cvttps_epi32(units));
  }
  const __m512i sign = _mm512_srai_epi32(_mm512_castps_si512(value), 31);
  return _mm512_sub_epi32(_mm512_xor_si512(keys, sign), sign);
}

/// Of any format. 32 for equal values, one less for each bit of the distance.
EXPORTGUARD_AVX512_INLINE __m512i zeros_before_distance(__m512 expected, __m512 got, const UlpScale& scale) {
  const __m512i a = keys_of(expected, scale);
  const __m512i b = keys_of(got, scale);
  return _mm512_lzcnt_epi32(_mm512_sub_epi32(_mm512_max_epi32(a, b), _mm512_min_epi32(a, b)));
}

/// The same of float32 itself: bits of one sign are as far apart as their keys.
EXPORTGUARD_AVX512_INLINE __m512i zeros_before_distance(__m512 expected, __m512 got) {
  const __m512i a = _mm512_castps_si512(expected);
  const __m512i b = _mm512_castps_si512(got);
  const __m512i zeros = _mm512_lzcnt_epi32(_mm512_abs_epi32(_mm512_sub_epi32(a, b)));
  const __mmask16 differs_in_sign = _mm512_movepi32_mask(_mm512_xor_si512(a, b));
  if (__builtin_expect(differs_in_sign != 0, 0)) return zeros_before_distance(expected, got, UlpScale{});
  return zeros;
}

/// Counts buckets [first, first + kCountedAtOnce) of bytes, which hold 32 less the bucket, and returns whether there
/// are any beyond.
EXPORTGUARD_AVX512_CODE bool count_some(Histogram& ulps, const std::uint8_t* zeros, std::size_t pairs, int first) {
  __m512i counters[kCountedAtOnce];
  for (__m512i& counter : counters) counter = _mm512_setzero_si512();
  const __m512i one = _mm512_set1_epi8(1);
  const __m512i last = _mm512_set1_epi8(static_cast<char>(32 - first - kCountedAtOnce));
  __mmask64 beyond = 0;
  for (std::size_t i = 0; i < pairs; i += kAtOnce * kLanes) {
    const __m512i bytes = _mm512_load_si512(zeros + i);
#pragma GCC unroll 8
    for (int k = 0; k < kCountedAtOnce; ++k) {
      const __mmask64 here = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(static_cast<char>(32 - first - k)));
      counters[k] = _mm512_mask_add_epi8(counters[k], here, counters[k], one);
    }
    beyond |= _mm512_cmple_epi8_mask(bytes, last);
  }
  for (int k = 0; k < kCountedAtOnce; ++k) {
    const __m512i sums = _mm512_sad_epu8(counters[k], _mm512_setzero_si512());
    ulps[static_cast<std::size_t>(first + k)] += _mm512_reduce_add_epi64(sums);
  }
  return beyond != 0;
}

/// `pairs` is a multiple of a whole vector of bytes. Values that are alike take one round.
EXPORTGUARD_AVX512_CODE void count(Histogram& ulps, const std::uint8_t* zeros, std::size_t pairs) {
  for (int first = 0; first <= 32; first += kCountedAtOnce) {
    if (!count_some(ulps, zeros, pairs, first)) return;
  }
}

// ------------------------------------------------------------------------------------------------ sums

/// 1 / value, for values of at least `kSmallest`: within a unit in the last place or two.
EXPORTGUARD_AVX512_INLINE __m512 inverse_of(__m512 value) {
  const __m512 guess = _mm512_rcp14_ps(value);
  return _mm512_fmadd_ps(guess, _mm512_fnmadd_ps(value, guess, _mm512_set1_ps(1.0F)), guess);
}

EXPORTGUARD_AVX512_INLINE __m512 at_least_smallest(__m512 size) {
  return _mm512_max_ps(size, _mm512_set1_ps(static_cast<float>(kSmallest)));
}

// As integers NaN is above infinity, and that above every number; all sizes are positive.
EXPORTGUARD_AVX512_INLINE void add_lanes(Sums& sums, __m512 expected, __m512 got, __m512 absolute, __m512 tolerated) {
  const __m512 difference = _mm512_abs_ps(_mm512_sub_ps(got, expected));
  const __m512 size = _mm512_abs_ps(expected);
  const __m512 relative = _mm512_mul_ps(difference, inverse_of(at_least_smallest(size)));
  sums.max_absolute_bits = _mm512_max_epi32(sums.max_absolute_bits, _mm512_castps_si512(difference));
  sums.max_size_bits = _mm512_max_epi32(sums.max_size_bits, _mm512_castps_si512(size));
  sums.max_relative = _mm512_max_ps(sums.max_relative, relative);

  const __m512 bound = _mm512_fmadd_ps(tolerated, size, absolute);
  const __mmask16 over = _mm512_cmp_ps_mask(difference, bound, _CMP_GT_OQ);
  sums.over = _mm512_mask_add_epi32(sums.over, over, sums.over, _mm512_set1_epi32(1));

  sums.absolute = _mm512_add_ps(sums.absolute, difference);
  sums.relative = _mm512_add_ps(sums.relative, relative);
  sums.noise = _mm512_fmadd_ps(difference, difference, sums.noise);
  sums.expected = _mm512_fmadd_ps(expected, expected, sums.expected);
  sums.got = _mm512_fmadd_ps(got, got, sums.got);
  sums.product = _mm512_fmadd_ps(expected, got, sums.product);
}

EXPORTGUARD_AVX512_INLINE double total(__m512 lanes) {
  return _mm512_reduce_add_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(lanes))) +
         _mm512_reduce_add_pd(_mm512_cvtps_pd(_mm512_extractf32x8_ps(lanes, 1)));
}

EXPORTGUARD_AVX512_INLINE float largest_of(__m512i bits) { return std::bit_cast<float>(_mm512_reduce_max_epi32(bits)); }

EXPORTGUARD_AVX512_INLINE BlockTotals totals_of(const Sums& sums) {
  return {.over = _mm512_reduce_add_epi32(sums.over),
          .max_absolute = static_cast<double>(largest_of(sums.max_absolute_bits)),
          .max_relative = static_cast<double>(_mm512_reduce_max_ps(sums.max_relative)),
          .absolute = total(sums.absolute),
          .relative = total(sums.relative),
          .noise = total(sums.noise),
          .expected = total(sums.expected),
          .got = total(sums.got),
          .product = total(sums.product)};
}

/// The largest relative difference by division, which the lanes estimate by an inverse.
EXPORTGUARD_AVX512_CODE double max_relative_of(const Block<float>& block) {
  __m512 most = _mm512_setzero_ps();
  for (std::size_t i = 0; i < block.count; i += kLanes) {
    const __m512 expected = _mm512_loadu_ps(block.expected + i);
    const __m512 difference = _mm512_abs_ps(_mm512_sub_ps(_mm512_loadu_ps(block.got + i), expected));
    most = _mm512_max_ps(most, _mm512_div_ps(difference, at_least_smallest(_mm512_abs_ps(expected))));
  }
  return static_cast<double>(_mm512_reduce_max_ps(most));
}

// The processor's own prefetching ends with a page, and rests while a block is counted.
constexpr std::size_t kAhead = 2048 * sizeof(float);  // bytes: of the next block at the end of one

/// Asks for the cache line of an element further on, which may lie behind the tensor's end: nothing is read.
EXPORTGUARD_AVX512_INLINE void prefetch(const float* elements, std::size_t at) {
  const auto address = reinterpret_cast<std::uintptr_t>(elements) + at * sizeof(float) + kAhead;
  _mm_prefetch(reinterpret_cast<const char*>(address), _MM_HINT_T0);
}

constexpr double kEstimate = 1.0 + 1e-6;  // an estimate is no further off

/// The sums of a block, and for each pair the zeros before its distance, a byte in any order within each four vectors.
/// What fills up the last of these has no distance that is counted.
template <bool kIsPlain>
EXPORTGUARD_AVX512_INLINE Sums added(const Block<float>& block, const Bounds& bounds, const UlpScale& scale,
                                     std::uint8_t* zeros) {
  const __m512 absolute = _mm512_set1_ps(static_cast<float>(bounds.absolute));
  const __m512 tolerated = _mm512_set1_ps(static_cast<float>(bounds.relative));
  Sums sums = no_sums();
  std::size_t i = 0;
  for (; i + kAtOnce * kLanes <= block.count; i += kAtOnce * kLanes) {
    for (std::size_t line = 0; line < kAtOnce; ++line) {
      prefetch(block.expected, i + line * kLanes);
      prefetch(block.got, i + line * kLanes);
    }
    __m512i four[kAtOnce];
#pragma GCC unroll 4
    for (std::size_t k = 0; k < kAtOnce; ++k) {
      const __m512 expected = _mm512_loadu_ps(block.expected + i + k * kLanes);
      const __m512 got = _mm512_loadu_ps(block.got + i + k * kLanes);
      add_lanes(sums, expected, got, absolute, tolerated);
      four[k] = kIsPlain ? zeros_before_distance(expected, got) : zeros_before_distance(expected, got, scale);
    }
    const __m512i first = _mm512_packus_epi32(four[0], four[1]);
    const __m512i second = _mm512_packus_epi32(four[2], four[3]);
    _mm512_store_si512(zeros + i, _mm512_packus_epi16(first, second));
  }
  _mm512_store_si512(zeros + i, _mm512_set1_epi8(kNotCounted));
  for (; i < block.count; i += kLanes) {
    const __m512 expected = _mm512_loadu_ps(block.expected + i);
    const __m512 got = _mm512_loadu_ps(block.got + i);
    add_lanes(sums, expected, got, absolute, tolerated);
    const __m512i few = zeros_before_distance(expected, got, scale);
    _mm_store_si128(reinterpret_cast<__m128i*>(zeros + i), _mm512_cvtepi32_epi8(few));
  }
  return sums;
}

}  // namespace

EXPORTGUARD_AVX512_CODE bool add_block(Figures& into, Histogram& ulps, const Block<float>& block, const Bounds& bounds,
                                       const UlpScale& scale) {
  constexpr std::size_t kBytes = kAtOnce * kLanes;
  alignas(64) std::uint8_t zeros[kBlock + kBytes];
  const bool is_plain = scale.shift == 0 && scale.base == 0 && scale.smallest_normal == 0;
  const Sums sums = is_plain ? added<true>(block, bounds, scale, zeros) : added<false>(block, bounds, scale, zeros);

  const float largest = std::max(largest_of(sums.max_size_bits), largest_of(sums.max_absolute_bits));
  const bool is_usual =
      largest_of(sums.max_size_bits) < kLargestFloat && largest_of(sums.max_absolute_bits) < kLargestFloat;
  if (!is_usual || (largest > 0 && largest < kLeastFloat)) return false;
  BlockTotals totals = totals_of(sums);
  const bool may_be_more = totals.max_relative * kEstimate > into.max_relative;
  if (may_be_more) totals.max_relative = max_relative_of(block);
  take_over(into, block, totals);
  count(ulps, zeros, (block.count + kBytes - 1) / kBytes * kBytes);
  return true;
}

EXPORTGUARD_AVX512_CODE void widen_halves(const std::uint16_t* from, std::size_t count, float* into) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    _mm512_storeu_ps(into + i, _mm512_cvtph_ps(halves));
  }
  for (; i < count; ++i) into[i] = _cvtsh_ss(from[i]);
}

}  // namespace exportguard::validation::avx512

#endif
