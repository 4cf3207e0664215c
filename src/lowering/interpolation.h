#pragma once

#include <cstdint>
#include <optional>

#include "exportguard/lowering/context.h"

/// Interpolation written with operators that every float dtype has, for who has no kernel of Resize in one: each
/// element of the result is a weighted sum of some of the operand's, axis by axis, as in torch's own kernels.
namespace exportguard::lowering {

enum class Kernel : std::uint8_t { kLinear, kCubic };

/// One axis that gets another size.
struct InterpolatedAxis {
  std::int64_t axis;
  Size to;
  std::optional<double> factor;  ///< that the model gave; else the ratio of the sizes sets the positions
};

struct InterpolationOptions {
  Kernel kernel = Kernel::kLinear;
  bool aligns_corners = false;
  bool is_antialiased = false;
  bool is_of_bytes = false;  ///< the elements are whole numbers up to 255, and so are the result's
};

/// `x` is a float64.
Value* interpolated(LoweringContext& ctx, Value* x, const InterpolatedAxis& axis, const InterpolationOptions& options);

}  // namespace exportguard::lowering
