#include "lowering/kernels.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

namespace exportguard::lowering {
namespace {

using Set = unsigned;

constexpr Set bit(DType dtype) { return 1U << static_cast<unsigned>(dtype); }

constexpr Set kHalf = bit(DType::kFloat16) | bit(DType::kFloat32);
constexpr Set kReal = kHalf | bit(DType::kFloat64);
constexpr Set kSigned = bit(DType::kInt8) | bit(DType::kInt16) | bit(DType::kInt32) | bit(DType::kInt64);
constexpr Set kUnsigned = bit(DType::kUint8) | bit(DType::kUint16) | bit(DType::kUint32) | bit(DType::kUint64);
constexpr Set kNumbers = kReal | kSigned | kUnsigned;
constexpr Set kCommonInts = bit(DType::kInt32) | bit(DType::kInt64);
constexpr Set kBytes = bit(DType::kInt8) | bit(DType::kUint8);
constexpr Set kWideUnsigned = bit(DType::kUint32) | bit(DType::kUint64);

/// What every opset from 18 to 25 has a kernel for in onnxruntime's CPU provider.
const std::unordered_map<std::string_view, Set>& kernels() {
  static const std::unordered_map<std::string_view, Set> table = [] {
    std::unordered_map<std::string_view, Set> filled;
    const auto add = [&](Set dtypes, std::initializer_list<std::string_view> ops) {
      for (const std::string_view op : ops) filled.emplace(op, dtypes);
    };
    add(kNumbers,
        {"Add", "Sub", "Mul", "Div", "Mod", "Abs", "Sign", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"});
    add(kNumbers | bit(DType::kBool), {"Equal", "Expand"});
    add(kReal | kSigned, {"Neg"});
    add(kReal, {"Ceil", "Floor", "Round", "Sqrt", "Exp", "Log", "Reciprocal", "Sin", "Cos", "Tanh", "Sigmoid",
                "Softmax", "LogSoftmax", "IsNaN"});
    add(kHalf,
        {"Erf",      "Tan",      "Asin", "Acos", "Atan",      "Sinh",        "Cosh",      "Asinh", "Acosh", "Atanh",
         "Softplus", "Softsign", "Elu",  "Selu", "LeakyRelu", "HardSigmoid", "HardSwish", "Mish",  "Gelu",  "PRelu"});
    add(bit(DType::kFloat32), {"Celu"});
    add(bit(DType::kFloat32) | bit(DType::kFloat64), {"IsInf"});
    add(kReal | kCommonInts, {"Pow", "CumSum", "ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2",
                              "ReduceLogSumExp", "ReduceSumSquare"});
    add(kReal | kCommonInts | bit(DType::kBool), {"Trilu"});
    add(kReal | kCommonInts | kBytes, {"ReduceMax", "ReduceMin", "ArgMax", "ArgMin"});
    add(kReal | kCommonInts | kBytes | bit(DType::kInt16), {"TopK"});
    add(kReal | bit(DType::kInt8) | bit(DType::kInt32), {"Relu"});
    add(kReal | kCommonInts | kBytes | kWideUnsigned, {"Max", "Min", "Clip"});
    add(kReal | kCommonInts | kBytes | kWideUnsigned | bit(DType::kBool), {"Pad"});
    add(kHalf | kCommonInts | bit(DType::kUint8) | bit(DType::kBool), {"NonZero"});
    add(kReal | bit(DType::kInt8) | bit(DType::kInt64), {"Unique"});
    add(kReal | kBytes, {"DepthToSpace"});
    add(kHalf, {"Col2Im"});
    add(kReal | kCommonInts | kBytes | bit(DType::kUint32), {"Where"});
    add(bit(DType::kFloat32) | bit(DType::kFloat64) | bit(DType::kInt16) | kCommonInts, {"Range"});
    add(bit(DType::kUint8) | kWideUnsigned, {"BitShift"});
    add(kSigned | kUnsigned, {"BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"});
    add(kReal | kCommonInts | kWideUnsigned, {"MatMul"});
    add(kReal | kCommonInts, {"Einsum"});
    add(kReal, {"Gemm", "BatchNormalization", "RMSNormalization", "LpNormalization", "DFT"});
    add(kReal | bit(DType::kBFloat16), {"LayerNormalization"});
    add(kReal | kBytes, {"MaxPool"});
    add(kHalf, {"Conv", "ConvTranspose", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool",
                "InstanceNormalization", "LSTM", "GRU", "RNN", "Det", "LRN", "GridSample"});
    add(kHalf | bit(DType::kInt8) | bit(DType::kUint8) | bit(DType::kInt32), {"Resize"});
    return filled;
  }();
  return table;
}

/// Wider dtypes that hold every value of `dtype`, nearest first; then those that hold most.
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
      return {DType::kInt64, DType::kFloat64, DType::kFloat32};
    case DType::kInt64:
      return {DType::kFloat64, DType::kFloat32};
    case DType::kFloat16:
      return {DType::kFloat32};
    case DType::kFloat64:
      return {DType::kFloat32};
    default:
      return {};
  }
}

}  // namespace

DType kernel_dtype(const LoweringContext& ctx, std::string_view op, DType dtype) {
  return kernel_dtype(ctx.target(), op, dtype);
}

DType kernel_dtype(Target target, std::string_view op, DType dtype) {
  if (target == Target::kOnnx) return dtype;
  const auto row = kernels().find(op);
  if (row == kernels().end() || (row->second & bit(dtype)) != 0) return dtype;
  const std::vector<DType> candidates = wider(dtype);
  const auto found =
      std::ranges::find_if(candidates, [&](DType candidate) { return (row->second & bit(candidate)) != 0; });
  return found == candidates.end() ? dtype : *found;
}

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
