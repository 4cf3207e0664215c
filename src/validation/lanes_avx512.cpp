#include "validation/lanes_avx512.h"

#ifdef EXPORTGUARD_AVX512

#include <algorithm>
#include <array>
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
constexpr std::size_t kBytes = kAtOnce * kLanes;
static_assert(kBlock / kBytes <= 64, "a bit for each");
constexpr int kCountedAtOnce = 8;  // buckets, each in a register with a byte for each lane
constexpr char kNotCounted = 127;  // is no number of zeros
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

/// The same of bits of one sign, which are as far apart as their keys.
EXPORTGUARD_AVX512_INLINE __m512i zeros_before_distance(__m512i expected, __m512i got) {
  return _mm512_lzcnt_epi32(_mm512_abs_epi32(_mm512_sub_epi32(expected, got)));
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

EXPORTGUARD_AVX512_INLINE __m512 at_least_smallest(__m512 size) {
  return _mm512_max_ps(size, _mm512_set1_ps(static_cast<float>(kSmallest)));
}

// As integers NaN is above infinity, and that above every number; all sizes are positive.
EXPORTGUARD_AVX512_INLINE void add_lanes(Sums& sums, __m512 expected, __m512 got, __m512 absolute, __m512 tolerated) {
  const __m512 difference = _mm512_abs_ps(_mm512_sub_ps(got, expected));
  const __m512 size = _mm512_abs_ps(expected);
  const __m512 relative = _mm512_div_ps(difference, at_least_smallest(size));
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

// ------------------------------------------------------------------------------------------------ how values lie

struct Floats {
  using Element = float;
  using Raw = __m512;
  EXPORTGUARD_AVX512_INLINE static Raw loaded(const Element* from) { return _mm512_loadu_ps(from); }
  EXPORTGUARD_AVX512_INLINE static __m512 value_of(Raw raw) { return raw; }
  /// The bits as integers of their own width, which differ by the units between two values of one sign.
  EXPORTGUARD_AVX512_INLINE static __m512i key_of(Raw raw) { return _mm512_castps_si512(raw); }
};

struct Halves {
  using Element = std::uint16_t;
  using Raw = __m256i;
  EXPORTGUARD_AVX512_INLINE static Raw loaded(const Element* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  EXPORTGUARD_AVX512_INLINE static __m512 value_of(Raw raw) { return _mm512_cvtph_ps(raw); }
  EXPORTGUARD_AVX512_INLINE static __m512i key_of(Raw raw) { return _mm512_cvtepi16_epi32(raw); }
};

struct BFloats {
  using Element = std::uint16_t;
  using Raw = __m256i;
  EXPORTGUARD_AVX512_INLINE static Raw loaded(const Element* from) { return Halves::loaded(from); }
  EXPORTGUARD_AVX512_INLINE static __m512 value_of(Raw raw) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16));
  }
  EXPORTGUARD_AVX512_INLINE static __m512i key_of(Raw raw) { return Halves::key_of(raw); }
};

/// Whose units distances are in: those of both sides' own bits, or those of a format that is narrower than one of them.
enum class Units { kOwn, kNarrower };

template <typename Expected, typename Got, Units kUnits>
struct Sides {
  const typename Expected::Element* expected;
  const typename Got::Element* got;
};

// The processor's own prefetching ends with a page, and rests while a block is counted.
constexpr std::size_t kAhead = 16384;  // bytes: of the next blocks
constexpr std::size_t kLine = 64;

/// Asks for the cache lines of elements further on, which may lie behind the tensor's end: nothing is read.
template <typename Element>
EXPORTGUARD_AVX512_INLINE void prefetch(const Element* elements, std::size_t at) {
  const auto address = reinterpret_cast<std::uintptr_t>(elements + at) + kAhead;
#pragma GCC unroll 4
  for (std::size_t line = 0; line < kAtOnce * kLanes * sizeof(Element); line += kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(address + line), _MM_HINT_T0);
  }
}

/// A vector of pairs, as the bits that lie in memory and as float32.
template <typename Expected, typename Got>
struct Vector {
  typename Expected::Raw expected_bits;
  typename Got::Raw got_bits;
  __m512 expected, got;
};

template <typename Expected, typename Got, Units kUnits>
EXPORTGUARD_AVX512_INLINE Vector<Expected, Got> vector_at(const Sides<Expected, Got, kUnits>& sides, std::size_t at) {
  const auto expected_bits = Expected::loaded(sides.expected + at);
  const auto got_bits = Got::loaded(sides.got + at);
  return {expected_bits, got_bits, Expected::value_of(expected_bits), Got::value_of(got_bits)};
}

/// Adds one vector of pairs, and gives the zeros before each distance as if no pair differed in its sign; the highest
/// bits of `signs` are set for those that do.
template <typename Expected, typename Got, Units kUnits>
EXPORTGUARD_AVX512_INLINE __m512i add_vector(Sums& sums, const Sides<Expected, Got, kUnits>& sides, std::size_t at,
                                             const __m512 (&tolerance)[2], const UlpScale& scale, __m512i& signs) {
  const Vector<Expected, Got> pairs = vector_at(sides, at);
  add_lanes(sums, pairs.expected, pairs.got, tolerance[0], tolerance[1]);
  if constexpr (kUnits == Units::kNarrower) return zeros_before_distance(pairs.expected, pairs.got, scale);

  const __m512i expected = Expected::key_of(pairs.expected_bits);
  const __m512i got = Got::key_of(pairs.got_bits);
  signs = _mm512_ternarylogic_epi32(signs, expected, got, 0xF6);  // signs | (expected ^ got)
  return zeros_before_distance(expected, got);
}

EXPORTGUARD_AVX512_INLINE __m512i packed_bytes(const __m512i (&four)[kAtOnce]) {
  return _mm512_packus_epi16(_mm512_packus_epi32(four[0], four[1]), _mm512_packus_epi32(four[2], four[3]));
}

/// Writes the zeros before the distances of four vectors anew: some pair of theirs differs in its sign.
template <typename Expected, typename Got, Units kUnits>
EXPORTGUARD_AVX512_CODE void count_zeros_of_any_sign(const Sides<Expected, Got, kUnits>& sides, std::size_t at,
                                                     const UlpScale& scale, std::uint8_t* zeros) {
  __m512i four[kAtOnce];
  for (std::size_t k = 0; k < kAtOnce; ++k) {
    const Vector<Expected, Got> pairs = vector_at(sides, at + k * kLanes);
    four[k] = zeros_before_distance(pairs.expected, pairs.got, scale);
  }
  _mm512_store_si512(zeros + at, packed_bytes(four));
}

/// The sums of a block, and for each pair the zeros before its distance, a byte in any order within each four vectors.
/// What fills up the last of these has no distance that is counted.
template <typename Expected, typename Got, Units kUnits>
EXPORTGUARD_AVX512_INLINE Sums added(const Sides<Expected, Got, kUnits>& sides, std::size_t count, const Bounds& bounds,
                                     const UlpScale& scale, std::uint8_t* zeros) {
  const __m512 tolerance[2] = {_mm512_set1_ps(static_cast<float>(bounds.absolute)),
                               _mm512_set1_ps(static_cast<float>(bounds.relative))};
  Sums sums = no_sums();

  std::uint64_t of_two_signs = 0;  // a bit for each four vectors: a branch there would put the sums into memory
  std::size_t i = 0;
  for (; i + kBytes <= count; i += kBytes) {
    prefetch(sides.expected, i);
    prefetch(sides.got, i);
    __m512i four[kAtOnce];
    __m512i signs = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (std::size_t k = 0; k < kAtOnce; ++k) {
      four[k] = add_vector(sums, sides, i + k * kLanes, tolerance, scale, signs);
    }
    _mm512_store_si512(zeros + i, packed_bytes(four));
    of_two_signs |= std::uint64_t{_mm512_movepi32_mask(signs) != 0} << (i / kBytes);
  }
  for (; of_two_signs != 0; of_two_signs &= of_two_signs - 1) {
    const auto group = static_cast<std::size_t>(std::countr_zero(of_two_signs));
    count_zeros_of_any_sign(sides, group * kBytes, scale, zeros);
  }

  _mm512_store_si512(zeros + i, _mm512_set1_epi8(kNotCounted));
  for (; i < count; i += kLanes) {
    __m512i signs = _mm512_setzero_si512();
    __m512i few = add_vector(sums, sides, i, tolerance, scale, signs);
    if (_mm512_movepi32_mask(signs) != 0) {
      const Vector<Expected, Got> pairs = vector_at(sides, i);
      few = zeros_before_distance(pairs.expected, pairs.got, scale);
    }
    _mm_store_si128(reinterpret_cast<__m128i*>(zeros + i), _mm512_cvtepi32_epi8(few));
  }
  return sums;
}

// ------------------------------------------------------------------------------------------------ blocks

const float* widened_side(const void* from, Packing packing, std::size_t count, float* room) {
  if (packing == Packing::kFloat) return static_cast<const float*>(from);
  if (packing == Packing::kHalf) widen_halves(static_cast<const std::uint16_t*>(from), count, room);
  if (packing == Packing::kBFloat16) widen_bfloats(static_cast<const std::uint16_t*>(from), count, room);
  return room;
}

Block<float> widened(const PackedBlock& block) {
  thread_local std::array<float, kBlock> rooms[2];
  return {widened_side(block.expected, block.expected_packing, block.count, rooms[0].data()),
          widened_side(block.got, block.got_packing, block.count, rooms[1].data()), block.count, block.position};
}

template <typename Expected, typename Got, Units kUnits>
EXPORTGUARD_AVX512_CODE bool add_sides(Figures& into, Histogram& ulps, const PackedBlock& block, const Bounds& bounds,
                                       const UlpScale& scale) {
  alignas(64) std::uint8_t zeros[kBlock + kBytes];
  const Sides<Expected, Got, kUnits> sides{static_cast<const typename Expected::Element*>(block.expected),
                                           static_cast<const typename Got::Element*>(block.got)};
  const Sums sums = added(sides, block.count, bounds, scale, zeros);

  const float size = largest_of(sums.max_size_bits);
  const float difference = largest_of(sums.max_absolute_bits);
  const bool is_usual = size < kLargestFloat && difference < kLargestFloat;  // not with a NaN
  const float largest = std::max(size, difference);
  if (!is_usual || (largest > 0 && largest < kLeastFloat)) return false;

  const BlockTotals totals = totals_of(sums);
  const bool is_looked_at = totals.max_relative > into.max_relative || totals.max_absolute > into.max_absolute;
  take_over(into, is_looked_at ? widened(block) : Block<float>{nullptr, nullptr, block.count, 0}, totals);
  count(ulps, zeros, (block.count + kBytes - 1) / kBytes * kBytes);
  return true;
}

bool is_float(const UlpScale& scale) { return scale.shift == 0 && scale.base == 0 && scale.smallest_normal == 0; }

/// Two float32 sides may be in units of a narrower format that they were widened from.
AddPacked two_floats(const UlpScale& scale) {
  return is_float(scale) ? &add_sides<Floats, Floats, Units::kOwn> : &add_sides<Floats, Floats, Units::kNarrower>;
}

AddPacked for_sides(Packing expected, Packing got, const UlpScale& scale) {
  constexpr AddPacked kForms[3][3] = {
      {nullptr, &add_sides<Floats, Halves, Units::kNarrower>, &add_sides<Floats, BFloats, Units::kNarrower>},
      {&add_sides<Halves, Floats, Units::kNarrower>, &add_sides<Halves, Halves, Units::kOwn>,
       &add_sides<Halves, BFloats, Units::kNarrower>},
      {&add_sides<BFloats, Floats, Units::kNarrower>, &add_sides<BFloats, Halves, Units::kNarrower>,
       &add_sides<BFloats, BFloats, Units::kOwn>}};
  const AddPacked form = kForms[static_cast<int>(expected)][static_cast<int>(got)];
  return form != nullptr ? form : two_floats(scale);
}

}  // namespace

EXPORTGUARD_AVX512_CODE bool add_packed(Figures& into, Histogram& ulps, const PackedBlock& block, const Bounds& bounds,
                                        const UlpScale& scale) {
  return for_sides(block.expected_packing, block.got_packing, scale)(into, ulps, block, bounds, scale);
}

EXPORTGUARD_AVX512_CODE bool add_block(Figures& into, Histogram& ulps, const Block<float>& block, const Bounds& bounds,
                                       const UlpScale& scale) {
  const PackedBlock packed{block.expected, Packing::kFloat, block.got, Packing::kFloat, block.count, block.position};
  return two_floats(scale)(into, ulps, packed, bounds, scale);
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
