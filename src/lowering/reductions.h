#pragma once

#include <cstdint>
#include <vector>

#include "exportguard/lowering/context.h"

/// Reductions that several families of lowerings share. `axes` are counted from 0; none are all.
namespace exportguard::lowering {

enum class Extreme { kLargest, kSmallest };

/// Axes to reduce, and whether they stay with size 1.
struct ReducedAxes {
  std::vector<std::int64_t> axes;
  bool keepdim = false;
};

/// The largest or smallest element; NaN if there is one, which ONNX leaves open.
Value* extreme_value(LoweringContext& ctx, Value* x, Extreme extreme, const ReducedAxes& over);

/// Its first index along one axis, int64; that of the first NaN if there is one. A tensor of rank 0 has index 0.
Value* extreme_index(LoweringContext& ctx, Value* x, Extreme extreme, std::int64_t axis, bool keepdim);

/// The sum, and the product, in the dtype of `x`; those of integers wrap around as torch's do.
Value* sum(LoweringContext& ctx, Value* x, const ReducedAxes& over);
Value* product(LoweringContext& ctx, Value* x, const ReducedAxes& over);

/// bool: one of the elements, or all of them, are not zero.
Value* any_true(LoweringContext& ctx, Value* x, const ReducedAxes& over);
Value* all_true(LoweringContext& ctx, Value* x, const ReducedAxes& over);

/// How many elements one result is made of: a number of that dtype.
Value* reduced_count(LoweringContext& ctx, Value* x, const std::vector<std::int64_t>& axes, DType dtype);

/// The mean of a float, that of a half-precision one perhaps as float32; NaN of nothing.
Value* mean(LoweringContext& ctx, Value* x, const ReducedAxes& over);

}  // namespace exportguard::lowering
