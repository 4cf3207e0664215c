#include "lowering/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "lowering/target_facts.h"

namespace exportguard::lowering {
namespace {

/// Wider dtypes that hold every value of `dtype` (float64 and int64: those that a program uses), nearest first. None
/// for float64: what has no kernel in it is written by other means.
std::vector<DType> wider(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return {DType::kUint8, DType::kInt32, DType::kFloat32};
    case DType::kUint8:
      return {DType::kInt16, DType::kInt32, DType::kFloat32};
    case DType::kInt8:
      return {DType::kInt16, DType::kInt32, DType::kFloat32};
    case DType::kUint16:
      return {DType::kInt32, DType::kUint32, DType::kFloat32};
    case DType::kInt16:
      return {DType::kInt32, DType::kFloat32};
    case DType::kUint32:
      return {DType::kInt64, DType::kUint64, DType::kFloat64};
    case DType::kUint64:
      return {DType::kInt64, DType::kFloat64};
    case DType::kInt32:
      return {DType::kInt64, DType::kFloat64};
    case DType::kInt64:
      return {DType::kFloat64};
    case DType::kFloat16:
      return {DType::kFloat32};
    default:
      return {};
  }
}

}  // namespace

DType kernel_dtype(const LoweringContext& ctx, std::string_view op, DType dtype) {
  if (lacks_double(ctx, op, dtype)) {
    ctx.fail(fmt::format("the target {} has no kernel of {} in float64; convert the operands with .to(torch.float32)",
                         facts(ctx.target()).name, op));
  }
  return kernel_dtype(ctx.target(), op, dtype);
}

bool lacks_double(const LoweringContext& ctx, std::string_view op, DType dtype) {
  return dtype == DType::kFloat64 && !has_kernel(ctx.target(), op, dtype);
}

bool holds(DType dtype, double number) {
  return dtype != DType::kFloat64 || static_cast<double>(static_cast<float>(number)) == number;
}

DType kernel_dtype(Target target, std::string_view op, DType dtype) {
  const auto runs = [&](DType candidate) { return has_kernel(target, op, candidate); };
  if (runs(dtype)) return dtype;
  const std::vector<DType> candidates = wider(dtype);
  const auto found = std::ranges::find_if(candidates, runs);
  return found == candidates.end() ? dtype : *found;
}

bool departs(const LoweringContext& ctx, Departure departure) { return departs(ctx.target(), departure); }

Value* kernel_op(LoweringContext& ctx, std::string_view op, const std::vector<Value*>& operands,
                 ir::AttributeList attributes) {
  ctx.require(!is_complex(operands.front()->dtype()), "complex tensors have no ONNX operator " + std::string(op));
  const DType dtype = kernel_dtype(ctx, op, operands.front()->dtype());
  std::vector<Value*> cast;
  for (Value* operand : operands) cast.push_back(operand ? ctx.cast(operand, dtype) : nullptr);
  return ctx.op(op, cast, std::move(attributes));
}

Value* same_dtype_op(LoweringContext& ctx, std::string_view op, const std::vector<Value*>& operands,
                     ir::AttributeList attributes) {
  return ctx.cast(kernel_op(ctx, op, operands, std::move(attributes)), operands.front()->dtype());
}

Value* kernel_reduce(LoweringContext& ctx, std::string_view op, Value* value, const std::vector<std::int64_t>& axes,
                     bool keepdim) {
  ctx.require(!is_complex(value->dtype()), "complex tensors have no ONNX operator " + std::string(op));
  return ctx.reduce(op, ctx.cast(value, kernel_dtype(ctx, op, value->dtype())), axes, keepdim);
}

}  // namespace exportguard::lowering
