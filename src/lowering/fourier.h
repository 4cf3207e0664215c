#pragma once

#include <cstdint>
#include <vector>

#include "exportguard/lowering/context.h"

/// Fourier transforms as ONNX's DFT has them: a signal is a float64 tensor with one more axis, the last, of the real
/// part alone or of the real and the imaginary part. float64, because sums in float32 lose digits with the number of
/// samples.
namespace exportguard::lowering {

/// As torch numbers them: by nothing, the root of the number of samples, the number.
enum class Normalization : std::uint8_t { kNone, kByRoot, kByCount };

struct Transform {
  enum class Direction : std::uint8_t { kForward, kInverse };
  Direction direction = Direction::kForward;
  Normalization normalization = Normalization::kNone;
};

/// Argument `i`, a tensor or the list of its parts, as a signal.
Value* signal_of(LoweringContext& ctx, std::size_t i);

/// The parts of a signal, without the last axis.
Value* real_part(LoweringContext& ctx, Value* signal);
Value* imaginary_part(LoweringContext& ctx, Value* signal);
void give_parts(LoweringContext& ctx, Value* signal);  ///< both as the results of the node

/// Cut, or continued by zeros.
Value* with_samples(LoweringContext& ctx, Value* signal, std::int64_t axis, const Size& samples);

/// Along every one of `axes`, which count from 0.
Value* to_complex(LoweringContext& ctx, const Transform& transform, Value* signal,
                  const std::vector<std::int64_t>& axes);
/// Of a real signal; of the last of the axes the first half of the spectrum alone, which the other half mirrors.
Value* half_to_complex(LoweringContext& ctx, const Transform& transform, Value* signal,
                       const std::vector<std::int64_t>& axes);
/// From the first half of the spectrum of a real signal, that of the last axis, to its `count` samples.
Value* to_real(LoweringContext& ctx, const Transform& transform, Value* half, const std::vector<std::int64_t>& axes,
               const Size& count);

}  // namespace exportguard::lowering
