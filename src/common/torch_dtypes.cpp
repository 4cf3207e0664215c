#include "exportguard/common/torch_dtypes.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "exportguard/common/errors.h"

namespace exportguard {
namespace {

using c10::ScalarType;

// Float4_e2m1fn_x2 is left out: one element of it stands for two of ONNX, so shapes would not agree.
constexpr std::array<std::pair<DType, ScalarType>, 22> kPairs{{
    {DType::kFloat32, ScalarType::Float},
    {DType::kUint8, ScalarType::Byte},
    {DType::kInt8, ScalarType::Char},
    {DType::kUint16, ScalarType::UInt16},
    {DType::kInt16, ScalarType::Short},
    {DType::kInt32, ScalarType::Int},
    {DType::kInt64, ScalarType::Long},
    {DType::kBool, ScalarType::Bool},
    {DType::kFloat16, ScalarType::Half},
    {DType::kFloat64, ScalarType::Double},
    {DType::kUint32, ScalarType::UInt32},
    {DType::kUint64, ScalarType::UInt64},
    {DType::kComplex64, ScalarType::ComplexFloat},
    {DType::kComplex128, ScalarType::ComplexDouble},
    {DType::kBFloat16, ScalarType::BFloat16},
    {DType::kFloat8E4M3FN, ScalarType::Float8_e4m3fn},
    {DType::kFloat8E4M3FNUZ, ScalarType::Float8_e4m3fnuz},
    {DType::kFloat8E5M2, ScalarType::Float8_e5m2},
    {DType::kFloat8E5M2FNUZ, ScalarType::Float8_e5m2fnuz},
    {DType::kFloat8E8M0, ScalarType::Float8_e8m0fnu},
    {DType::kUint4, ScalarType::UInt4},
    {DType::kInt4, ScalarType::Int4},
}};

}  // namespace

DType from_scalar_type(ScalarType type) {
  for (const auto& [onnx, torch] : kPairs) {
    if (torch == type) return onnx;
  }
  throw InvalidArgument(fmt::format("torch dtype {} has no ONNX counterpart; convert the tensor to another dtype first",
                                    c10::toString(type)));
}

ScalarType to_scalar_type(DType dtype) {
  for (const auto& [onnx, torch] : kPairs) {
    if (onnx == dtype) return torch;
  }
  throw InvalidArgument(fmt::format("dtype {} has no torch counterpart", name(dtype)));
}

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  try {
    return from_scalar_type(c10::promoteTypes(to_scalar_type(a), to_scalar_type(b)));
  } catch (const c10::Error&) {
    throw InvalidArgument(fmt::format("torch does not combine dtypes {} and {}; cast one of them", name(a), name(b)));
  }
}

}  // namespace exportguard
