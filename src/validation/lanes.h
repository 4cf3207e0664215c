#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "validation/figures.h"

namespace exportguard::validation {

/// Blocks are added a multiple of this many pairs at a time.
inline constexpr std::size_t kLanes = 16;
/// Pairs per block: both sides, converted, stay in the first two levels of the cache.
inline constexpr std::size_t kBlock = 255 * kLanes;

using Histogram = std::array<std::int64_t, kBuckets>;

/// Pairs that lie side by side; `position` is that of the first one.
template <typename T>
struct Block {
  const T* expected;
  const T* got;
  std::size_t count;  ///< a multiple of kLanes, at most kBlock
  std::int64_t position;
};

/// Adds a block. Returns false and adds nothing if a value is NaN, infinite, or so large or small that its square
/// leaves T: then the pairs are for `add_pair`.
template <typename T>
using AddBlock = bool (*)(Figures&, Histogram&, const Block<T>&, const Bounds&, const UlpScale&);

enum class Instructions { kBaseline, kAvx2, kAvx512 };

/// Null if this machine lacks those instructions. T is float or double.
template <typename T>
AddBlock<T> find_add_block(Instructions instructions);

/// The one with the widest vectors that the processor has.
template <typename T>
AddBlock<T> add_block();

/// How float32 values lie in memory.
enum class Packing { kFloat, kHalf, kBFloat16 };

/// `Block<float>` of values that are not widened yet.
struct PackedBlock {
  const void* expected;
  Packing expected_packing;
  const void* got;
  Packing got_packing;
  std::size_t count;  ///< a multiple of kLanes, at most kBlock
  std::int64_t position;
};

/// `AddBlock<float>` of packed values, with the same figures to the last bit, which reads each byte once.
using AddPacked = bool (*)(Figures&, Histogram&, const PackedBlock&, const Bounds&, const UlpScale&);

/// Null if this machine lacks the instructions: then the values are to be widened before.
AddPacked find_add_packed();

/// What the lanes of a block add up to.
struct BlockTotals {
  std::int64_t over;
  double max_absolute, max_relative;
  double absolute, relative, noise, expected, got, product;
};

/// Adds the totals of a block, and looks for the places of its largest differences where they are new.
template <typename T>
void take_over(Figures& into, const Block<T>& block, const BlockTotals& totals);

/// Float16 values as float32.
void widen_halves(const std::uint16_t* from, std::size_t count, float* into);

/// Bfloat16 values as float32.
void widen_bfloats(const std::uint16_t* from, std::size_t count, float* into);

}  // namespace exportguard::validation
