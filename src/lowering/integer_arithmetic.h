#pragma once

#include "lowering/reductions.h"

/// Arithmetic of integers as torch computes it, exact and wrapping around, where onnxruntime's CPU provider (up
/// to 1.31) goes through doubles or compares wrong.
namespace exportguard::lowering {

// The larger and the smaller of two numbers of one dtype; NaN wins. onnxruntime's Max, Min and Clip of int64 confuse
// numbers that do not fit into 32 bits.
Value* larger_of(LoweringContext& ctx, Value* a, Value* b);
Value* smaller_of(LoweringContext& ctx, Value* a, Value* b);

/// The sum of int64 elements. ReduceSum adds doubles, and saturates; a product of matrices is exact.
Value* integer_sum(LoweringContext& ctx, Value* x, const ReducedAxes& over);

/// The product of int64 elements, one at a time: ReduceProd multiplies doubles.
Value* integer_product(LoweringContext& ctx, Value* x, const ReducedAxes& over);

/// The power of int64 numbers, by repeated squaring: Pow goes through doubles. To a negative exponent it is the
/// quotient 1 / power rounded to zero.
Value* integer_power(LoweringContext& ctx, Value* base, Value* exponent);

}  // namespace exportguard::lowering
