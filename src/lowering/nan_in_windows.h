#pragma once

#include <cstddef>

#include "exportguard/lowering/context.h"

/// What torch makes of NaN in the windows of a MaxPool, which ONNX leaves open: a window that has one gives NaN, and
/// the place of the last one.
namespace exportguard::lowering {

/// float64 of the shape of `x`: where a NaN stands in its channel (the last `spatial` axes), and -1 for all else. Its
/// maximum over a window is for `with_nan`.
Value* places_of_nan(LoweringContext& ctx, Value* x, std::size_t spatial);

struct PooledMaxima {
  Value* values;
  Value* places;  ///< int64, within the channel
};

/// `found` where the maximum of `places_of_nan` is negative.
PooledMaxima with_nan(LoweringContext& ctx, const PooledMaxima& found, Value* last);

}  // namespace exportguard::lowering
