#pragma once

#include <optional>
#include <string>
#include <vector>

#include "exportguard/common/dtypes.h"
#include "exportguard/common/symbolic.h"

namespace exportguard::ir {

using Dim = SymExpr;
using Shape = std::vector<Dim>;

/// Elements of a small integer tensor (rank 0 or 1), as far as the sizes of the inputs tell them: `[batch, 32]`.
using Elements = std::vector<SymExpr>;

/// The type of a value: a tensor, a sequence or optional of tensors, or an optional of a sequence (ONNX `TypeProto`).
/// A Python int, float or bool of a torch program is a tensor of rank 0 with `is_scalar` set.
struct Type {
  enum class Kind : std::uint8_t { kTensor, kSequence, kOptional, kOptionalSequence };

  Kind kind = Kind::kTensor;
  DType dtype = DType::kUndefined;
  std::optional<Shape> shape;    ///< nothing: unknown rank
  bool is_scalar = false;        ///< SymInt, SymFloat or SymBool at the torch level
  std::optional<SymExpr> value;  ///< what a SymInt is, as an expression

  static Type tensor(DType dtype, std::optional<Shape> shape = std::nullopt) {
    return {Kind::kTensor, dtype, std::move(shape), false, std::nullopt};
  }
  static Type scalar(DType dtype, std::optional<SymExpr> value = std::nullopt) {
    return {Kind::kTensor, dtype, Shape{}, true, std::move(value)};
  }

  std::optional<std::size_t> rank() const { return shape ? std::optional(shape->size()) : std::nullopt; }

  /// `f32[batch,seq + 1,8]`, `f32[*]` without a rank, `seq(f32[2])`, `optional(f32[2])`,
  /// `optional(seq(f32[2]))`; for scalars `int` (i64),
  /// `float` (f32), `bool`, else `scalar(f64)`, each with its value if known: `int{past + seq}`.
  std::string str() const;

  friend bool operator==(const Type&, const Type&) = default;
};

}  // namespace exportguard::ir
