#pragma once

#include <string_view>
#include <vector>

#include "exportguard/lowering/context.h"
#include "lowering/target_facts.h"

namespace exportguard::lowering {

/// The dtype to compute an ONNX operator in when its operands are `dtype`: the same where the target has a kernel for
/// it, else the nearest one that holds its values. bfloat16 stays, for who runs it, and so does float64, which no other
/// dtype holds.
DType kernel_dtype(Target target, std::string_view op, DType dtype);
/// @throws LoweringError if the target has no kernel in float64: a computation never loses digits without a word.
DType kernel_dtype(const LoweringContext& ctx, std::string_view op, DType dtype);

/// Whether the operands are float64 and the target has no such kernel: write what it does with others.
bool lacks_double(const LoweringContext& ctx, std::string_view op, DType dtype);

/// Whether an attribute, which is a float32 in ONNX whatever the operands are, is as good as `number` for operands of
/// that dtype.
bool holds(DType dtype, double number);

/// Whether the target does not run the plain form of something as the standard says.
bool departs(const LoweringContext& ctx, Departure departure);

/// One ONNX operator over operands of the same dtype, cast to one that has a kernel. The result is in that dtype:
/// `ctx.result` casts it to torch's.
Value* kernel_op(LoweringContext& ctx, std::string_view op, const std::vector<Value*>& operands,
                 ir::AttributeList attributes = {});

/// `kernel_op`, cast back to the dtype of the first operand; not for comparisons.
Value* same_dtype_op(LoweringContext& ctx, std::string_view op, const std::vector<Value*>& operands,
                     ir::AttributeList attributes = {});

/// `ReduceSum` and the like, cast to a dtype that has a kernel; no axes are all axes.
Value* kernel_reduce(LoweringContext& ctx, std::string_view op, Value* value, const std::vector<std::int64_t>& axes,
                     bool keepdim);

}  // namespace exportguard::lowering
