#pragma once

#include <vector>

#include "exportguard/lowering/context.h"

namespace exportguard::lowering {

/// Mean and variance (divided by the count) over axes that stay with size 1.
struct Moments {
  Value* mean;
  Value* variance;
};

/// The mean over axes that stay with size 1: over none it is `x`. (A reduction takes an empty list for all axes.)
Value* mean_over(LoweringContext& ctx, Value* x, const std::vector<std::int64_t>& axes);

/// `x` is a float32 or wider float; over no axis the variance is 0.
Moments moments(LoweringContext& ctx, Value* x, const std::vector<std::int64_t>& axes);

Value* inverse_root(LoweringContext& ctx, Value* variance, double epsilon);  ///< 1 / sqrt(variance + epsilon)

/// (x - mean) / sqrt(variance + epsilon)
Value* standardized(LoweringContext& ctx, Value* x, const Moments& statistics, double epsilon);

/// A vector with one entry for each channel (axis 1), shaped to broadcast with a tensor of that rank.
Value* per_channel(LoweringContext& ctx, Value* vector, std::size_t rank);

/// `x * weight + bias` for each channel, in the dtype of `x`; either may be null.
Value* scaled_channels(LoweringContext& ctx, Value* x, Value* weight, Value* bias);

/// The axes `first` to `last`, without `last`.
std::vector<std::int64_t> axes_between(std::size_t first, std::size_t last);

/// (sum of |x|^p)^(1/p) over axes that stay with size 1; p may be 0 (count), infinite or anything between. Over no axis
/// it is |x|.
Value* p_norm(LoweringContext& ctx, Value* x, double p, const std::vector<std::int64_t>& axes);

}  // namespace exportguard::lowering
