#pragma once

#include "exportguard/lowering/context.h"

namespace exportguard::lowering {

/// A tensor of rank 0 as a vector of one element, any other as it is.
Value* as_vector(LoweringContext& ctx, Value* x);

/// All elements in a vector.
Value* flattened(LoweringContext& ctx, Value* x);

}  // namespace exportguard::lowering
