#include "validation/lanes.h"

#include <c10/util/Half.h>

#include <bit>
#include <cmath>

#include "validation/lanes_avx512.h"

// GCC's and Clang's vector extensions: one body, compiled for each instruction set, chosen at run time. The warning is
// about passing vectors between translation units, which never happens here.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace exportguard::validation {
namespace {

#define EXPORTGUARD_INLINE inline __attribute__((always_inline))

// A typedef, for an alias drops an attribute that depends on a parameter.
/// Vectors of one width in bytes, that of the instruction set: wider ones would be taken apart element by element.
template <typename Real, int kBytes>
struct Lane;

template <int kBytes>
struct Lane<float, kBytes> {
  using Real = float;
  using Int = std::int32_t;
  typedef float Reals __attribute__((vector_size(kBytes)));
  typedef std::int32_t Ints __attribute__((vector_size(kBytes)));
  typedef std::uint32_t Naturals __attribute__((vector_size(kBytes)));
  static constexpr std::size_t kCount = kBytes / sizeof(float);
  static constexpr int kFraction = 23;
  static constexpr Int kBias = 127;
  static constexpr Int kMostBits = 32;
  static constexpr float kLargest = kLargestFloat;
  static constexpr float kLeast = kLeastFloat;
};

template <int kBytes>
struct Lane<double, kBytes> {
  using Real = double;
  using Int = std::int64_t;
  typedef double Reals __attribute__((vector_size(kBytes)));
  typedef std::int64_t Ints __attribute__((vector_size(kBytes)));
  typedef std::uint64_t Naturals __attribute__((vector_size(kBytes)));
  static constexpr std::size_t kCount = kBytes / sizeof(double);
  static constexpr int kFraction = 52;
  static constexpr Int kBias = 1023;
  static constexpr Int kMostBits = kBuckets - 1;
  static constexpr double kLargest = 1e150;
  static constexpr double kLeast = 1e-130;
};

template <typename L>
EXPORTGUARD_INLINE typename L::Reals loaded(const typename L::Real* from) {
  typename L::Reals lanes;
  __builtin_memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}

template <typename L>
EXPORTGUARD_INLINE typename L::Ints bits_of_lanes(typename L::Reals lanes) {
  typename L::Ints bits;
  __builtin_memcpy(&bits, &lanes, sizeof(bits));
  return bits;
}

template <typename L>
EXPORTGUARD_INLINE typename L::Reals size_of(typename L::Reals lanes) {
  const typename L::Ints bits = bits_of_lanes<L>(lanes) & ~(typename L::Int{1} << (sizeof(typename L::Real) * 8 - 1));
  __builtin_memcpy(&lanes, &bits, sizeof(lanes));
  return lanes;
}

template <typename L>
EXPORTGUARD_INLINE typename L::Ints keys_of(typename L::Reals value, typename L::Reals size, const UlpScale& scale) {
  using Int = typename L::Int;
  typename L::Ints keys = (bits_of_lanes<L>(size) >> scale.shift) - static_cast<Int>(scale.base);
  if (scale.smallest_normal > 0) {
    const auto units = __builtin_convertvector(size * static_cast<typename L::Real>(scale.per_unit), typename L::Ints);
    keys = size < static_cast<typename L::Real>(scale.smallest_normal) ? units : keys;
  }
  return value < 0 ? -keys : keys;
}

/// As `bucket_of`: the exponent of the distance as a floating-point number. Every second bit is cleared below a set
/// one, so that the conversion cannot round up to the next power of two.
template <typename L>
EXPORTGUARD_INLINE typename L::Ints buckets_of(typename L::Ints a, typename L::Ints b) {
  using Naturals = typename L::Naturals;
  const Naturals larger = reinterpret_cast<Naturals>(a > b ? a : b);
  const Naturals smaller = reinterpret_cast<Naturals>(a > b ? b : a);
  const auto distance = reinterpret_cast<typename L::Ints>(larger - smaller);
  const auto real = __builtin_convertvector(distance & ~(distance >> 1), typename L::Reals);
  const typename L::Ints exponent = (bits_of_lanes<L>(real) >> L::kFraction) - (L::kBias - 1);
  const typename L::Ints zeros = {};
  const typename L::Ints beyond = zeros + L::kMostBits;
  const typename L::Ints positive = distance == 0 ? zeros : exponent;
  return distance < 0 ? beyond : positive;
}

template <typename L>
struct BlockSums {
  using Reals = typename L::Reals;
  Reals max_absolute{}, max_relative{}, max_size{};
  Reals absolute{}, relative{}, noise{}, expected{}, got{}, product{};
  typename L::Ints over{}, unusual{};
};

template <typename L>
EXPORTGUARD_INLINE double total(typename L::Reals lanes) {
  double sum = 0;
  for (std::size_t i = 0; i < L::kCount; ++i) sum += static_cast<double>(lanes[i]);
  return sum;
}

template <typename L>
EXPORTGUARD_INLINE typename L::Real largest(typename L::Reals lanes) {
  typename L::Real most = lanes[0];
  for (std::size_t i = 1; i < L::kCount; ++i) most = lanes[i] > most ? lanes[i] : most;
  return most;
}

template <typename L>
EXPORTGUARD_INLINE bool any(typename L::Ints lanes) {
  typename L::Int all = 0;
  for (std::size_t i = 0; i < L::kCount; ++i) all |= lanes[i];
  return all != 0;
}

template <typename T>
T difference_at(const Block<T>& block, std::size_t i) {
  return std::fabs(block.got[i] - block.expected[i]);
}

template <typename T>
T relative_at(const Block<T>& block, std::size_t i) {
  const T size = std::fabs(block.expected[i]);
  return difference_at(block, i) / (size > static_cast<T>(kSmallest) ? size : static_cast<T>(kSmallest));
}

template <typename T>
using Measure = T (*)(const Block<T>&, std::size_t);

/// The first pair of the block with that value, by the same arithmetic as in the lanes; several are looked at at once.
template <typename T, Measure<T> kMeasure>
std::int64_t position_of(const Block<T>& block, T value) {
  std::size_t begin = 0;
  for (; begin < block.count; begin += kLanes) {
    int found = 0;
    for (std::size_t k = 0; k < kLanes; ++k) found |= static_cast<int>(kMeasure(block, begin + k) == value);
    if (found != 0) break;
  }
  for (std::size_t i = begin; i < block.count; ++i) {
    if (kMeasure(block, i) == value) return block.position + static_cast<std::int64_t>(i);
  }
  return block.position;
}

template <typename T>
void note_largest(Figures& into, const Block<T>& block, double absolute, double relative) {
  if (absolute > into.max_absolute) {
    into.max_absolute = absolute;
    into.max_absolute_at = position_of<T, difference_at<T>>(block, static_cast<T>(absolute));
  }
  if (relative > into.max_relative) {
    into.max_relative = relative;
    into.max_relative_at = position_of<T, relative_at<T>>(block, static_cast<T>(relative));
  }
}

template <typename L>
EXPORTGUARD_INLINE void add_lanes(BlockSums<L>& sums, typename L::Reals expected, typename L::Reals got,
                                  typename L::Real absolute, typename L::Real tolerated) {
  using Reals = typename L::Reals;
  const Reals difference = size_of<L>(got - expected);
  const Reals size = size_of<L>(expected);
  const Reals other = size_of<L>(got);
  const Reals least = Reals{} + static_cast<typename L::Real>(kSmallest);
  const Reals relative = difference / (size > least ? size : least);
  const Reals wider = size > other ? size : other;

  // False for NaN on either side, too.
  const auto usual = (size < L::kLargest) & (other < L::kLargest);
  sums.unusual |= ~usual;
  sums.max_size = wider > sums.max_size ? wider : sums.max_size;

  sums.over -= difference > absolute + tolerated * size;
  sums.max_absolute = difference > sums.max_absolute ? difference : sums.max_absolute;
  sums.max_relative = relative > sums.max_relative ? relative : sums.max_relative;
  sums.absolute += difference;
  sums.relative += relative;
  sums.noise += difference * difference;
  sums.expected += expected * expected;
  sums.got += got * got;
  sums.product += expected * got;
}

template <typename L>
EXPORTGUARD_INLINE void count_ulps(Histogram (&tables)[4], typename L::Ints buckets) {
  for (std::size_t i = 0; i < L::kCount; ++i) ++tables[i % 4][static_cast<std::size_t>(buckets[i])];
}

template <typename L>
EXPORTGUARD_INLINE BlockTotals totals_of(const BlockSums<L>& sums) {
  std::int64_t over = 0;
  for (std::size_t i = 0; i < L::kCount; ++i) over += static_cast<std::int64_t>(sums.over[i]);
  return {.over = over,
          .max_absolute = static_cast<double>(largest<L>(sums.max_absolute)),
          .max_relative = static_cast<double>(largest<L>(sums.max_relative)),
          .absolute = total<L>(sums.absolute),
          .relative = total<L>(sums.relative),
          .noise = total<L>(sums.noise),
          .expected = total<L>(sums.expected),
          .got = total<L>(sums.got),
          .product = total<L>(sums.product)};
}

template <typename L>
EXPORTGUARD_INLINE bool add_block_of(Figures& into, Histogram& ulps, const Block<typename L::Real>& block,
                                     const Bounds& bounds, const UlpScale& scale) {
  // Four tables, for the counter of the same bucket is not ready again at once.
  Histogram tables[4] = {};
  BlockSums<L> sums;
  const typename L::Real absolute = static_cast<typename L::Real>(bounds.absolute);
  const typename L::Real tolerated = static_cast<typename L::Real>(bounds.relative);

  for (std::size_t i = 0; i < block.count; i += L::kCount) {
    const auto expected = loaded<L>(block.expected + i);
    const auto got = loaded<L>(block.got + i);
    add_lanes<L>(sums, expected, got, absolute, tolerated);
    count_ulps<L>(tables, buckets_of<L>(keys_of<L>(expected, size_of<L>(expected), scale),
                                        keys_of<L>(got, size_of<L>(got), scale)));
  }

  const typename L::Real size = largest<L>(sums.max_size);
  if (any<L>(sums.unusual) || (size > 0 && size < L::kLeast)) return false;
  take_over(into, block, totals_of(sums));
  for (const Histogram& table : tables) {
    for (std::size_t i = 0; i < ulps.size(); ++i) ulps[i] += table[i];
  }
  return true;
}

#ifdef EXPORTGUARD_AVX512
EXPORTGUARD_AVX512_CODE bool add_block_avx512(Figures& into, Histogram& ulps, const Block<double>& block,
                                              const Bounds& bounds, const UlpScale& scale) {
  return add_block_of<Lane<double, 64>>(into, ulps, block, bounds, scale);
}

EXPORTGUARD_AVX512_CODE bool add_block_avx512(Figures& into, Histogram& ulps, const Block<float>& block,
                                              const Bounds& bounds, const UlpScale& scale) {
  return avx512::add_block(into, ulps, block, bounds, scale);
}

template <typename T>
__attribute__((target("avx2,fma"))) bool add_block_avx2(Figures& into, Histogram& ulps, const Block<T>& block,
                                                        const Bounds& bounds, const UlpScale& scale) {
  return add_block_of<Lane<T, 32>>(into, ulps, block, bounds, scale);
}
#endif

template <typename T>
bool add_block_any(Figures& into, Histogram& ulps, const Block<T>& block, const Bounds& bounds, const UlpScale& scale) {
  return add_block_of<Lane<T, 16>>(into, ulps, block, bounds, scale);
}

}  // namespace

template <typename T>
void take_over(Figures& into, const Block<T>& block, const BlockTotals& totals) {
  into.finite += static_cast<std::int64_t>(block.count);
  into.over += totals.over;
  note_largest(into, block, totals.max_absolute, totals.max_relative);
  into.sum_absolute += totals.absolute;
  into.sum_relative += totals.relative;
  into.sum_noise += totals.noise;
  into.sum_expected += totals.expected;
  into.sum_got += totals.got;
  into.sum_product += totals.product;
}

template void take_over(Figures&, const Block<float>&, const BlockTotals&);
template void take_over(Figures&, const Block<double>&, const BlockTotals&);

void widen_halves(const std::uint16_t* from, std::size_t count, float* into) {
#ifdef EXPORTGUARD_AVX512
  static const bool is_fast = avx512::is_supported();
  if (is_fast) return avx512::widen_halves(from, count, into);
#endif
  for (std::size_t i = 0; i < count; ++i) into[i] = c10::Half(from[i], c10::Half::from_bits());
}

void widen_bfloats(const std::uint16_t* from, std::size_t count, float* into) {
  for (std::size_t i = 0; i < count; ++i) into[i] = std::bit_cast<float>(static_cast<std::uint32_t>(from[i]) << 16);
}

AddPacked find_add_packed() {
#ifdef EXPORTGUARD_AVX512
  static const AddPacked fastest = avx512::is_supported() ? &avx512::add_packed : AddPacked{};
  return fastest;
#else
  return nullptr;
#endif
}

template <typename T>
AddBlock<T> find_add_block(Instructions instructions) {
#ifdef EXPORTGUARD_AVX512
  if (instructions == Instructions::kAvx512) {
    const AddBlock<T> widest = &add_block_avx512;
    return avx512::is_supported() ? widest : nullptr;
  }
  if (instructions == Instructions::kAvx2) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &add_block_avx2<T> : AddBlock<T>{};
  }
#endif
  return instructions == Instructions::kBaseline ? &add_block_any<T> : AddBlock<T>{};
}

template AddBlock<float> find_add_block(Instructions);
template AddBlock<double> find_add_block(Instructions);

template <typename T>
AddBlock<T> add_block() {
  static const AddBlock<T> fastest = [] {
    if (const AddBlock<T> widest = find_add_block<T>(Instructions::kAvx512)) return widest;
    const AddBlock<T> wide = find_add_block<T>(Instructions::kAvx2);
    return wide != nullptr ? wide : find_add_block<T>(Instructions::kBaseline);
  }();
  return fastest;
}

template AddBlock<float> add_block();
template AddBlock<double> add_block();

}  // namespace exportguard::validation
