#pragma once

#include "exportguard/lowering/context.h"

/// Formulas over whole tensors that several families of lowerings share. Operands have the same dtype and broadcast.
namespace exportguard::lowering {

/// What torch makes several steps of and rounds once: a bfloat16 in float32. Each operator on a bfloat16 rounds what it
/// gives; a float16 stays, for which targets have kernels, or round no step in between.
Value* rounded_once(LoweringContext& ctx, Value* x);

/// Bool: x is below zero or is -0.0. A negative NaN counts as positive.
Value* sign_bit(LoweringContext& ctx, Value* x);

/// A magnitude, negated where `is_below` holds, -0.0 among what it gives.
Value* with_sign(LoweringContext& ctx, Value* is_below, Value* magnitude);

Value* rounded_to_zero(LoweringContext& ctx, Value* x);  ///< floats

/// The quotient rounded to zero. Integers wrap around: the least one by -1 is itself, where processors stop a process.
Value* whole_quotient(LoweringContext& ctx, Value* a, Value* b);

/// The quotient rounded down, `a // b`; for floats as torch and Python compute it, from the remainder.
Value* floor_quotient(LoweringContext& ctx, Value* a, Value* b);

/// What the rounded-down quotient leaves, `a % b`: it has the sign of the divisor.
Value* floor_remainder(LoweringContext& ctx, Value* a, Value* b);

/// What the quotient rounded to zero leaves: it has the sign of the dividend.
Value* truncated_remainder(LoweringContext& ctx, Value* a, Value* b);

/// log(1 + x) and exp(x) - 1, exact to the last digits for small x too; floats.
Value* log_one_plus(LoweringContext& ctx, Value* x);
Value* exp_minus_one(LoweringContext& ctx, Value* x);

/// log(exp(a) + exp(b)) of floats, without overflow.
Value* log_of_sum(LoweringContext& ctx, Value* a, Value* b);

/// A number of any dtype is not zero: bool.
Value* as_bool(LoweringContext& ctx, Value* x);

}  // namespace exportguard::lowering
