#pragma once

#include "lowering/reductions.h"

/// Arithmetic of integers as torch computes it, exact and wrapping around, also where the target goes through doubles
/// (`Departure::kInt64ThroughDoubles`).
namespace exportguard::lowering {

// The larger and the smaller of two numbers of one dtype; NaN wins. Max, Min and Clip through doubles confuse int64
// numbers that are large.
Value* larger_of(LoweringContext& ctx, Value* a, Value* b);
Value* smaller_of(LoweringContext& ctx, Value* a, Value* b);

/// The sum of int64 elements. A ReduceSum that adds doubles saturates; a product of matrices is exact.
Value* integer_sum(LoweringContext& ctx, Value* x, const ReducedAxes& over);

/// The product of int64 elements, one at a time where ReduceProd multiplies doubles.
Value* integer_product(LoweringContext& ctx, Value* x, const ReducedAxes& over);

/// The power of int64 numbers, by repeated squaring where Pow goes through doubles. To a negative exponent it is the
/// quotient 1 / power rounded to zero.
Value* integer_power(LoweringContext& ctx, Value* base, Value* exponent);

}  // namespace exportguard::lowering
