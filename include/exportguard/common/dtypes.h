#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace exportguard {

/// Element types. The values are those of `TensorProto.DataType` in onnx.proto.
enum class DType : std::uint8_t {
  kUndefined = 0,
  kFloat32 = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kFloat64 = 11,
  kUint32 = 12,
  kUint64 = 13,
  kComplex64 = 14,
  kComplex128 = 15,
  kBFloat16 = 16,
  kFloat8E4M3FN = 17,
  kFloat8E4M3FNUZ = 18,
  kFloat8E5M2 = 19,
  kFloat8E5M2FNUZ = 20,
  kUint4 = 21,
  kInt4 = 22,
  kFloat4E2M1 = 23,
  kFloat8E8M0 = 24,
  kUint2 = 25,
  kInt2 = 26,
};

/// Short name as the text format prints it: `f32`, `i64`, `bool`, `bf16`, `f8e4m3fn`, `c64`, …
std::string_view name(DType dtype);

/// Inverse of `name`; nothing if `text` names no dtype.
std::optional<DType> find_dtype(std::string_view text);

/// Inverse of `name`. @throws InvalidArgument if `text` names no dtype.
DType dtype(std::string_view text);

/// Bits of one element; 0 for strings and the undefined type.
int bit_width(DType dtype);

bool is_floating(DType dtype);  ///< float8 to float64, bfloat16
bool is_integral(DType dtype);  ///< signed and unsigned integers, not bool
bool is_unsigned(DType dtype);
bool is_complex(DType dtype);

}  // namespace exportguard
