#include "quantization/block.h"

#include <c10/util/Half.h>

#include <algorithm>
#include <bit>
#include <cmath>

// One body in the vector extensions of GCC and Clang, compiled for each instruction set and chosen at run time. The
// warning is about passing vectors between translation units, which never happens here.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace exportguard::quantization {
namespace {

#define EXPORTGUARD_INLINE inline __attribute__((always_inline))

constexpr std::int32_t kWithoutSign = 0x7fffffff;
constexpr std::int32_t kInfinity = 0x7f800000;

/// Vectors as wide as the registers: wider ones would be taken apart element by element.
template <int kBytes>
struct Lane {
  typedef float Reals __attribute__((vector_size(kBytes)));
  typedef std::int32_t Ints __attribute__((vector_size(kBytes)));
  typedef std::uint64_t Pairs __attribute__((vector_size(kBytes)));
  typedef std::uint8_t Bytes __attribute__((vector_size(kBytes / 4)));
  typedef std::uint8_t HalfBytes __attribute__((vector_size(kBytes / 8)));
  static constexpr std::size_t kCount = kBytes / sizeof(float);
};

template <typename T>
EXPORTGUARD_INLINE T loaded(const void* from) {
  T lanes;
  __builtin_memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}

/// The smallest and the largest number of a block.
struct Range {
  float low, high;
};

/// Of the lanes of two vectors, which are cut in halves until a few are left: those lie in the first of equal ones.
template <int kBytes>
EXPORTGUARD_INLINE Range across(const typename Lane<kBytes>::Reals& low, const typename Lane<kBytes>::Reals& high) {
  if constexpr (kBytes > 16) {
    using Half = typename Lane<kBytes / 2>::Reals;
    Half lows[2], highs[2];
    __builtin_memcpy(lows, &low, sizeof(lows));
    __builtin_memcpy(highs, &high, sizeof(highs));
    return across<kBytes / 2>(lows[1] < lows[0] ? lows[1] : lows[0], highs[1] > highs[0] ? highs[1] : highs[0]);
  } else {
    Range range{low[0], high[0]};
    for (std::size_t i = 1; i < Lane<kBytes>::kCount; ++i) {
      range.low = std::min(range.low, static_cast<float>(low[i]));
      range.high = std::max(range.high, static_cast<float>(high[i]));
    }
    return range;
  }
}

template <int kBytes>
EXPORTGUARD_INLINE Range range_of(const float* numbers, std::size_t count) {
  using L = Lane<kBytes>;
  auto low = loaded<typename L::Reals>(numbers);
  auto high = low;
  for (std::size_t i = L::kCount; i < count; i += L::kCount) {
    const auto next = loaded<typename L::Reals>(numbers + i);
    low = next < low ? next : low;
    high = next > high ? next : high;
  }
  return across<kBytes>(low, high);
}

template <int kBytes>
EXPORTGUARD_INLINE bool all_finite_of(const float* numbers, std::size_t count) {
  using L = Lane<kBytes>;
  typename L::Ints largest{};
  for (std::size_t i = 0; i < count; i += L::kCount) {
    const typename L::Ints size = loaded<typename L::Ints>(numbers + i) & kWithoutSign;
    largest = size > largest ? size : largest;
  }
  bool is_finite = true;
  for (std::size_t i = 0; i < L::kCount; ++i) is_finite = is_finite && largest[i] < kInfinity;
  return is_finite;
}

float as_stored(const BlockRule& rule, float scale) {
  return rule.is_half ? static_cast<float>(c10::Half(scale)) : scale;
}

Scale scale_of(const BlockRule& rule, const Range& range) {
  const int middle = 1 << (rule.bits - 1);
  const int most = (1 << rule.bits) - 1;
  if (rule.is_symmetric) {
    const float farthest = std::fabs(range.high) > std::fabs(range.low) ? range.high : range.low;
    const float scale = as_stored(rule, farthest / static_cast<float>(-middle));
    return {scale, rule.is_standard ? 0 : middle};
  }
  const float low = std::min(range.low, 0.0F);
  const float high = std::max(range.high, 0.0F);
  const float scale = (high - low) / static_cast<float>(most);
  const float zero = scale != 0.0F ? 0.0F - low / scale : low;
  const int nearest = static_cast<int>(std::round(std::clamp(zero, 0.0F, static_cast<float>(most))));
  return {as_stored(rule, scale), nearest};
}

/// Numbers to whole ones, halves away from zero.
template <typename L>
EXPORTGUARD_INLINE typename L::Ints rounded(typename L::Reals numbers) {
  const typename L::Ints whole = __builtin_convertvector(numbers, typename L::Ints);
  const typename L::Reals rest = numbers - __builtin_convertvector(whole, typename L::Reals);
  return whole - (rest >= 0.5F) + (rest <= -0.5F);  // a comparison that holds is -1
}

/// Writes values of 0 to 15 or of 8 bits.
template <int kBytes>
EXPORTGUARD_INLINE void write(const BlockRule& rule, typename Lane<kBytes>::Ints whole, std::uint8_t* values,
                              std::size_t at) {
  using L = Lane<kBytes>;
  if (rule.is_packed) {
    typename L::Pairs pairs;
    __builtin_memcpy(&pairs, &whole, sizeof(pairs));
    const auto bytes = __builtin_convertvector((pairs | (pairs >> 28U)) & 0xFFU, typename L::HalfBytes);
    __builtin_memcpy(values + at / 2, &bytes, sizeof(bytes));
  } else {
    const auto bytes = __builtin_convertvector(whole, typename L::Bytes);
    __builtin_memcpy(values + at, &bytes, sizeof(bytes));
  }
}

template <int kBytes>
EXPORTGUARD_INLINE Scale quantize_block_of(const BlockRule& rule, const float* numbers, std::size_t count,
                                           std::uint8_t* values) {
  using L = Lane<kBytes>;
  const Scale found = scale_of(rule, range_of<kBytes>(numbers, count));
  const float reciprocal = found.scale != 0.0F ? 1.0F / found.scale : 0.0F;
  const float factor = std::isfinite(reciprocal) ? reciprocal : 0.0F;

  // What is added before rounding, and after it: halves go away from zero, or from the smallest value.
  const auto before = static_cast<float>(rule.is_standard ? 0 : found.zero);
  const int after = rule.is_standard ? found.zero : 0;
  const int smallest = rule.is_standard && rule.is_symmetric ? -(1 << (rule.bits - 1)) : 0;
  const auto low = static_cast<float>(smallest - after);
  const auto high = static_cast<float>(smallest + (1 << rule.bits) - 1 - after);

  const typename L::Reals least = low - typename L::Reals{};
  const typename L::Reals most = high - typename L::Reals{};
  for (std::size_t i = 0; i < count; i += L::kCount) {
    typename L::Reals scaled = loaded<typename L::Reals>(numbers + i) * factor + before;
    scaled = scaled < least ? least : scaled;
    scaled = scaled > most ? most : scaled;
    write<kBytes>(rule, rounded<L>(scaled) + after, values, i);
  }
  return found;
}

#if defined(__x86_64__)
#define EXPORTGUARD_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define EXPORTGUARD_AVX2 __attribute__((target("avx2")))

EXPORTGUARD_AVX512 Scale quantize_avx512(const BlockRule& rule, const float* numbers, std::size_t count,
                                         std::uint8_t* values) {
  return quantize_block_of<64>(rule, numbers, count, values);
}

EXPORTGUARD_AVX512 bool all_finite_avx512(const float* numbers, std::size_t count) {
  return all_finite_of<64>(numbers, count);
}

EXPORTGUARD_AVX2 Scale quantize_avx2(const BlockRule& rule, const float* numbers, std::size_t count,
                                     std::uint8_t* values) {
  return quantize_block_of<32>(rule, numbers, count, values);
}

EXPORTGUARD_AVX2 bool all_finite_avx2(const float* numbers, std::size_t count) {
  return all_finite_of<32>(numbers, count);
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

Scale quantize_any(const BlockRule& rule, const float* numbers, std::size_t count, std::uint8_t* values) {
  return quantize_block_of<16>(rule, numbers, count, values);
}

bool all_finite_any(const float* numbers, std::size_t count) { return all_finite_of<16>(numbers, count); }

}  // namespace

Routines find_routines(Instructions instructions) {
#if defined(__x86_64__)
  if (instructions == Instructions::kAvx512 && has_avx512()) return {&quantize_avx512, &all_finite_avx512};
  if (instructions == Instructions::kAvx2 && __builtin_cpu_supports("avx2")) return {&quantize_avx2, &all_finite_avx2};
#endif
  return instructions == Instructions::kBaseline ? Routines{&quantize_any, &all_finite_any} : Routines{};
}

const Routines& routines() {
  static const Routines fastest = [] {
    for (const Instructions instructions : {Instructions::kAvx512, Instructions::kAvx2}) {
      if (const Routines found = find_routines(instructions); found.quantize != nullptr) return found;
    }
    return find_routines(Instructions::kBaseline);
  }();
  return fastest;
}

}  // namespace exportguard::quantization
