#pragma once

#include <cstddef>
#include <cstdint>

#include "exportguard/quantization/blocks.h"

namespace exportguard::quantization {

/// Vectors are filled up to a multiple of this many numbers.
inline constexpr std::size_t kLanes = 16;

/// What is done with every block of a matrix.
struct BlockRule {
  int bits;
  bool is_symmetric;
  bool is_standard;  ///< for DequantizeLinear: symmetric values are signed, and zero is added after rounding
  bool is_half;      ///< scales are rounded to float16
  bool is_packed;    ///< two values to a byte, the first in its lower half; else a byte each
};

/// A scale, and the value that stands for zero.
struct Scale {
  float scale;
  int zero;
};

/// Quantizes `count` numbers, a multiple of kLanes; signed values have their sign in all bits above.
using QuantizeBlock = Scale (*)(const BlockRule& rule, const float* numbers, std::size_t count, std::uint8_t* values);

/// Whether none of `count` numbers, a multiple of kLanes, is NaN or infinite.
using AllFinite = bool (*)(const float* numbers, std::size_t count);

struct Routines {
  QuantizeBlock quantize = nullptr;
  AllFinite all_finite = nullptr;
};

enum class Instructions { kBaseline, kAvx2, kAvx512 };

/// Nulls if this machine lacks those instructions.
Routines find_routines(Instructions instructions);

/// Those with the widest vectors that the processor has.
const Routines& routines();

}  // namespace exportguard::quantization
