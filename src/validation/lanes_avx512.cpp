#include "validation/lanes_avx512.h"

#ifdef EXPORTGUARD_AVX512

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

constexpr int kPackedBuckets = 16;  // in bytes of two 64-bit integers
static_assert(kBlock / kLanes <= 255, "a byte counts no further");

// Without initial values: the compiler's own constructors would not have the instructions.
struct Sums {
  __m512 max_absolute, max_relative;
  __m512 absolute, relative, noise, expected, got, product;
  __m512i max_bits;
  std::int64_t over;
};

/// One byte for each of eight buckets in every 64-bit lane, for both halves of the lanes: buckets 0 to 7 and 8 to 15.
struct Counters {
  __m512i low[2];
  __m512i high[2];
};

EXPORTGUARD_AVX512_CODE inline Sums no_sums() {
  const __m512 zero = _mm512_setzero_ps();
  return {zero, zero, zero, zero, zero, zero, zero, zero, _mm512_setzero_si512(), 0};
}

EXPORTGUARD_AVX512_CODE inline Counters no_counts() {
  const __m512i zero = _mm512_setzero_si512();
  return {{zero, zero}, {zero, zero}};
}

EXPORTGUARD_AVX512_CODE inline __m512i keys_of(__m512 value, __m512i size_bits, const UlpScale& scale) {
  __m512i keys = size_bits;
  if (scale.shift != 0) {
    const __m512i shifted = _mm512_srl_epi32(size_bits, _mm_cvtsi32_si128(scale.shift));
    keys = _mm512_sub_epi32(shifted, _mm512_set1_epi32(static_cast<int>(scale.base)));
  }
  if (scale.smallest_normal > 0) {
    const __m512 size = _mm512_castsi512_ps(size_bits);
    const __m512 units = _mm512_mul_ps(size, _mm512_set1_ps(static_cast<float>(scale.per_unit)));
    const __mmask16 is_subnormal =
        _mm512_cmp_ps_mask(size, _mm512_set1_ps(static_cast<float>(scale.smallest_normal)), _CMP_LT_OQ);
    keys = _mm512_mask_blend_epi32(is_subnormal, keys, _mm512_cvttps_epi32(units));
  }
  const __m512i sign = _mm512_srai_epi32(_mm512_castps_si512(value), 31);
  return _mm512_sub_epi32(_mm512_xor_si512(keys, sign), sign);
}

EXPORTGUARD_AVX512_CODE inline __m512i buckets_of(__m512i a, __m512i b) {
  const __m512i distance = _mm512_sub_epi32(_mm512_max_epi32(a, b), _mm512_min_epi32(a, b));
  return _mm512_sub_epi32(_mm512_set1_epi32(32), _mm512_lzcnt_epi32(distance));
}

/// A shift by 64 or more gives zero, so that each bucket is counted in one of the two.
EXPORTGUARD_AVX512_CODE inline void count_half(__m512i& low, __m512i& high, __m256i buckets) {
  const __m512i one = _mm512_set1_epi64(1);
  const __m512i shifts = _mm512_slli_epi64(_mm512_cvtepi32_epi64(buckets), 3);
  low = _mm512_add_epi8(low, _mm512_sllv_epi64(one, shifts));
  const __m512i beyond = _mm512_sub_epi64(shifts, _mm512_set1_epi64(64));
  high = _mm512_add_epi8(high, _mm512_sllv_epi64(one, beyond));
}

EXPORTGUARD_AVX512_CODE inline void count_rare(Histogram& ulps, __m512i buckets, __mmask16 rare) {
  alignas(64) std::int32_t each[kLanes];
  _mm512_store_si512(each, buckets);
  for (unsigned left = rare; left != 0; left &= left - 1) {
    ++ulps[static_cast<std::size_t>(each[std::countr_zero(left)])];
  }
}

EXPORTGUARD_AVX512_CODE inline void flush_one(Histogram& ulps, __m512i counters, std::size_t first) {
  alignas(64) std::uint8_t bytes[64];
  _mm512_store_si512(bytes, counters);
  for (std::size_t i = 0; i < sizeof(bytes); ++i) ulps[first + i % 8] += bytes[i];
}

EXPORTGUARD_AVX512_CODE inline void flush(Histogram& ulps, const Counters& counters) {
  for (std::size_t half = 0; half < 2; ++half) {
    flush_one(ulps, counters.low[half], 0);
    flush_one(ulps, counters.high[half], 8);
  }
}

EXPORTGUARD_AVX512_CODE inline void add_lanes(Sums& sums, __m512 expected, __m512 got, __m512 absolute,
                                              __m512 tolerated) {
  const __m512 difference = _mm512_abs_ps(_mm512_sub_ps(got, expected));
  const __m512 size = _mm512_abs_ps(expected);
  const __m512 least = _mm512_set1_ps(static_cast<float>(kSmallest));
  const __m512 relative = _mm512_div_ps(difference, _mm512_max_ps(size, least));

  // As integers NaN is above infinity, and that above every number.
  const __m512i bits = _mm512_max_epi32(_mm512_castps_si512(size), _mm512_castps_si512(_mm512_abs_ps(got)));
  sums.max_bits = _mm512_max_epi32(sums.max_bits, bits);

  const __m512 bound = _mm512_add_ps(absolute, _mm512_mul_ps(tolerated, size));
  sums.over += std::popcount(static_cast<unsigned>(_mm512_cmp_ps_mask(difference, bound, _CMP_GT_OQ)));
  sums.max_absolute = _mm512_max_ps(sums.max_absolute, difference);
  sums.max_relative = _mm512_max_ps(sums.max_relative, relative);
  sums.absolute = _mm512_add_ps(sums.absolute, difference);
  sums.relative = _mm512_add_ps(sums.relative, relative);
  sums.noise = _mm512_fmadd_ps(difference, difference, sums.noise);
  sums.expected = _mm512_fmadd_ps(expected, expected, sums.expected);
  sums.got = _mm512_fmadd_ps(got, got, sums.got);
  sums.product = _mm512_fmadd_ps(expected, got, sums.product);
}

EXPORTGUARD_AVX512_CODE inline double total(__m512 lanes) {
  return _mm512_reduce_add_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(lanes))) +
         _mm512_reduce_add_pd(_mm512_cvtps_pd(_mm512_extractf32x8_ps(lanes, 1)));
}

EXPORTGUARD_AVX512_CODE inline BlockTotals totals_of(const Sums& sums) {
  return {.over = sums.over,
          .max_absolute = static_cast<double>(_mm512_reduce_max_ps(sums.max_absolute)),
          .max_relative = static_cast<double>(_mm512_reduce_max_ps(sums.max_relative)),
          .absolute = total(sums.absolute),
          .relative = total(sums.relative),
          .noise = total(sums.noise),
          .expected = total(sums.expected),
          .got = total(sums.got),
          .product = total(sums.product)};
}

}  // namespace

EXPORTGUARD_AVX512_CODE bool add_block(Figures& into, Histogram& ulps, const Block<float>& block, const Bounds& bounds,
                                       const UlpScale& scale) {
  const __m512 absolute = _mm512_set1_ps(static_cast<float>(bounds.absolute));
  const __m512 tolerated = _mm512_set1_ps(static_cast<float>(bounds.relative));
  Sums sums = no_sums();
  Counters counters = no_counts();
  Histogram counted{};
  for (std::size_t i = 0; i < block.count; i += kLanes) {
    const __m512 expected = _mm512_loadu_ps(block.expected + i);
    const __m512 got = _mm512_loadu_ps(block.got + i);
    add_lanes(sums, expected, got, absolute, tolerated);

    const __m512i expected_bits = _mm512_castps_si512(_mm512_abs_ps(expected));
    const __m512i got_bits = _mm512_castps_si512(_mm512_abs_ps(got));
    const __m512i buckets = buckets_of(keys_of(expected, expected_bits, scale), keys_of(got, got_bits, scale));
    count_half(counters.low[0], counters.high[0], _mm512_castsi512_si256(buckets));
    count_half(counters.low[1], counters.high[1], _mm512_extracti32x8_epi32(buckets, 1));
    const __mmask16 rare = _mm512_cmpge_epi32_mask(buckets, _mm512_set1_epi32(kPackedBuckets));
    if (rare != 0) count_rare(counted, buckets, rare);
  }
  flush(counted, counters);

  const auto largest = std::bit_cast<float>(_mm512_reduce_max_epi32(sums.max_bits));
  if (!(largest < kLargestFloat) || (largest > 0 && largest < kLeastFloat)) return false;
  take_over(into, block, totals_of(sums));
  for (std::size_t i = 0; i < ulps.size(); ++i) ulps[i] += counted[i];
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
