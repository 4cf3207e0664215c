#pragma once

#include "exportguard/lowering/context.h"

namespace exportguard::lowering {

// The least and the greatest number of a dtype as constants of rank 0: the infinities for floats.
Value* lowest(LoweringContext& ctx, DType dtype);
Value* highest(LoweringContext& ctx, DType dtype);

}  // namespace exportguard::lowering
