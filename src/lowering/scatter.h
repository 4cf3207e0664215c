#pragma once

#include <optional>
#include <string_view>

#include "exportguard/lowering/context.h"

namespace exportguard::lowering {

/// What happens where elements meet: none is "the last one written stays".
enum class Reduction { kNone, kAdd, kMultiply, kMaximum, kMinimum };

/// torch's name: sum, add, prod, multiply, amax, amin. @throws LoweringError for another one.
Reduction reduction_named(LoweringContext& ctx, std::string_view name);

// The updates are cast to the dtype of `data`, which the result keeps whatever the target's kernels take.

/// ScatterElements: `index` has the shape of `updates`, axes of rank 0 tensors are added and dropped again.
Value* scatter_elements(LoweringContext& ctx, Value* data, std::int64_t axis, Value* index, Value* updates,
                        Reduction reduction);

/// ScatterND: `index` is int64[…, k] for the first k axes of `data`.
Value* scatter_nd(LoweringContext& ctx, Value* data, Value* index, Value* updates, Reduction reduction);

/// `updates` has one slice along the axis for each entry of the vector `index`.
Value* scatter_slices(LoweringContext& ctx, Value* data, std::int64_t axis, Value* index, Value* updates,
                      Reduction reduction);

}  // namespace exportguard::lowering
