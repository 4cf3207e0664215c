#include "exportguard/ir/types.h"

#include <fmt/format.h>

namespace exportguard::ir {
namespace {

std::string tensor_text(const Type& type) {
  if (!type.shape) return fmt::format("{}[*]", name(type.dtype));
  std::string text;
  for (const Dim& dim : *type.shape) text += (text.empty() ? "" : ",") + dim.str();
  return fmt::format("{}[{}]", name(type.dtype), text);
}

std::string scalar_name(DType dtype) {
  if (dtype == DType::kInt64) return "int";
  if (dtype == DType::kFloat32) return "float";
  return dtype == DType::kBool ? "bool" : fmt::format("scalar({})", name(dtype));
}

}  // namespace

std::string Type::str() const {
  if (is_scalar) return scalar_name(dtype) + (value ? '{' + value->str() + '}' : std::string());
  if (kind == Kind::kSequence) return fmt::format("seq({})", tensor_text(*this));
  if (kind == Kind::kOptionalSequence) return fmt::format("optional(seq({}))", tensor_text(*this));
  if (kind == Kind::kOptional) return fmt::format("optional({})", tensor_text(*this));
  return tensor_text(*this);
}

}  // namespace exportguard::ir
