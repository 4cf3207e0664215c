#pragma once

#include <vector>

#include "exportguard/lowering/context.h"

namespace exportguard::lowering {

/// A constant vector of floats, each rounded to `dtype`.
Value* doubles(LoweringContext& ctx, const std::vector<double>& numbers, DType dtype);

}  // namespace exportguard::lowering
