#pragma once

#include <string_view>

#include "exportguard/lowering/context.h"

namespace exportguard::lowering {

/// One of ONNX's functions of a float, for every float dtype. A target may have `Erf`, `Tan`, `Asin`, `Acos`, `Atan`,
/// `Sinh`, `Cosh`, `Asinh`, `Acosh` and `Atanh` in float32 at most; of a float64 they are computed in float64 from what
/// it has there.
Value* float_function(LoweringContext& ctx, std::string_view op, Value* x);

/// erfc(x) exp(x²) of a float64 that is not negative.
Value* scaled_complementary_error(LoweringContext& ctx, Value* x);

}  // namespace exportguard::lowering
