#include "exportguard/lowering/table.h"
#include "lowering/kernels.h"

namespace exportguard::lowering {
namespace {

/// `logical` for bool, `bitwise` for integers.
void lower_binary(LoweringContext& ctx, std::string_view logical, std::string_view bitwise) {
  const DType dtype = ctx.output_dtype();
  ctx.result(ctx.op(dtype == DType::kBool ? logical : bitwise, {ctx.scalar(0, dtype), ctx.scalar(1, dtype)}));
}

void lower_and(LoweringContext& ctx) { lower_binary(ctx, "And", "BitwiseAnd"); }
void lower_or(LoweringContext& ctx) { lower_binary(ctx, "Or", "BitwiseOr"); }
void lower_xor(LoweringContext& ctx) { lower_binary(ctx, "Xor", "BitwiseXor"); }

void lower_not(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  ctx.result(ctx.op(x->dtype() == DType::kBool ? "Not" : "BitwiseNot", {x}));
}

/// The unsigned dtype in which bits are shifted; ONNX knows no signed shift.
DType shift_dtype(DType dtype) { return bit_width(dtype) > 32 ? DType::kUint64 : DType::kUint32; }

/// Bits shifted with zeros filled in; all are gone beyond the width, where BitShift itself is undefined.
Value* shift(LoweringContext& ctx, Value* x, Value* bits, std::string_view direction) {
  Value* width = ctx.constant(bit_width(x->dtype()), x->dtype());
  Value* moved = ctx.op("BitShift", {x, bits}, {{"direction", std::string(direction)}});
  return ctx.where(ctx.op("Less", {bits, width}), moved, ctx.number_like(0, x));
}

void lower_left_shift(LoweringContext& ctx) {
  const DType dtype = shift_dtype(ctx.output_dtype());
  ctx.result(shift(ctx, ctx.scalar(0, dtype), ctx.scalar(1, dtype), "LEFT"));
}

/// Keeps the sign: a negative number is shifted as its complement.
void lower_right_shift(LoweringContext& ctx) {
  const DType dtype = ctx.output_dtype();
  const DType wide = shift_dtype(dtype);
  Value* x = ctx.scalar(0, dtype);
  Value* bits = ctx.scalar(1, wide);
  if (is_unsigned(dtype)) return ctx.result(shift(ctx, ctx.cast(x, wide), bits, "RIGHT"));
  Value* is_negative = ctx.op("Less", {x, ctx.number_like(0, x)});
  Value* magnitude = ctx.where(is_negative, ctx.op("BitwiseNot", {x}), x);
  Value* moved = ctx.cast(shift(ctx, ctx.cast(magnitude, wide), bits, "RIGHT"), dtype);
  ctx.result(ctx.where(is_negative, ctx.op("BitwiseNot", {moved}), moved));
}

}  // namespace

void populate_bitwise(LoweringTable& table) {
  table.add({"aten.bitwise_and.Tensor", "aten.bitwise_and.Scalar", "aten.bitwise_and.Scalar_Tensor",
             "aten.__and__.Tensor", "aten.__and__.Scalar"},
            lower_and);
  table.add({"aten.bitwise_or.Tensor", "aten.bitwise_or.Scalar", "aten.bitwise_or.Scalar_Tensor", "aten.__or__.Tensor",
             "aten.__or__.Scalar"},
            lower_or);
  table.add({"aten.bitwise_xor.Tensor", "aten.bitwise_xor.Scalar", "aten.bitwise_xor.Scalar_Tensor",
             "aten.__xor__.Tensor", "aten.__xor__.Scalar"},
            lower_xor);
  table.add("aten.bitwise_not.default", lower_not);
  table.add({"aten.bitwise_left_shift.Tensor", "aten.bitwise_left_shift.Tensor_Scalar",
             "aten.bitwise_left_shift.Scalar_Tensor", "aten.__lshift__.Tensor", "aten.__lshift__.Scalar"},
            lower_left_shift);
  table.add({"aten.bitwise_right_shift.Tensor", "aten.bitwise_right_shift.Tensor_Scalar",
             "aten.bitwise_right_shift.Scalar_Tensor", "aten.__rshift__.Tensor", "aten.__rshift__.Scalar"},
            lower_right_shift);
}

}  // namespace exportguard::lowering
