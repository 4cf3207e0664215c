#include "serialization/proto_values.h"

#include <fmt/format.h>

#include <array>
#include <bit>

#include "exportguard/common/errors.h"
#include "serialization/dim_names.h"

namespace exportguard::serialization {

static_assert(std::endian::native == std::endian::little, "raw_data is little-endian");

namespace {

void fill_tensor_type(const ir::Type& type, pb::TypeProto::Tensor& proto) {
  proto.set_elem_type(static_cast<std::int32_t>(type.dtype));
  if (!type.shape) return;
  pb::TensorShapeProto& shape = *proto.mutable_shape();
  for (const ir::Dim& dim : *type.shape) {
    pb::TensorShapeProto::Dimension& added = *shape.add_dim();
    if (const auto value = dim.constant()) {
      added.set_dim_value(*value);
    } else if (std::string name = dim_name(dim); !name.empty()) {
      added.set_dim_param(std::move(name));
    }
  }
}

// Bytes of the first character, 0 if it is none: too long a form, half of a surrogate pair, or beyond Unicode.
std::size_t character_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  std::uint32_t code = lead & (0x7FU >> length);
  for (const char next : text.substr(1, length - 1)) {
    if ((static_cast<unsigned char>(next) & 0xC0U) != 0x80U) return 0;
    code = (code << 6U) | (static_cast<unsigned char>(next) & 0x3FU);
  }
  constexpr std::array<std::uint32_t, 5> kSmallest{0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xD800 && code < 0xE000;
  return code < kSmallest[length] || code > 0x10FFFF || is_surrogate ? 0 : length;
}

ir::Dim read_dim(const pb::TensorShapeProto::Dimension& proto) {
  if (proto.has_dim_value() && proto.dim_value() >= 0) return proto.dim_value();
  return proto.has_dim_param() && !proto.dim_param().empty() ? read_dim_name(proto.dim_param()) : unknown_size();
}

ir::Type read_tensor_type(const pb::TypeProto::Tensor& proto, ir::Type::Kind kind) {
  ir::Type type;
  type.kind = kind;
  type.dtype = find_element_type(proto.elem_type()).value_or(DType::kUndefined);
  if (!proto.has_shape()) return type;
  type.shape.emplace();
  for (const auto& dim : proto.shape().dim()) type.shape->push_back(read_dim(dim));
  return type;
}

}  // namespace

bool is_known(const ir::Type& type) { return type.dtype != DType::kUndefined && type.shape.has_value(); }

void fill_type(const ir::Type& type, pb::TypeProto& proto) {
  switch (type.kind) {
    case ir::Type::Kind::kTensor:
      return fill_tensor_type(type, *proto.mutable_tensor_type());
    case ir::Type::Kind::kSequence:
      return fill_tensor_type(type, *proto.mutable_sequence_type()->mutable_elem_type()->mutable_tensor_type());
    case ir::Type::Kind::kOptional:
      return fill_tensor_type(type, *proto.mutable_optional_type()->mutable_elem_type()->mutable_tensor_type());
    case ir::Type::Kind::kOptionalSequence: {
      pb::TypeProto& sequence = *proto.mutable_optional_type()->mutable_elem_type();
      return fill_tensor_type(type, *sequence.mutable_sequence_type()->mutable_elem_type()->mutable_tensor_type());
    }
  }
}

void fill_tensor_header(const ir::Tensor& tensor, pb::TensorProto& proto) {
  proto.set_data_type(static_cast<std::int32_t>(tensor.dtype()));
  for (const std::int64_t dim : tensor.shape()) proto.add_dims(dim);
}

void fill_tensor_data(const ir::Tensor& tensor, pb::TensorProto& proto) {
  if (tensor.dtype() == DType::kString) {
    for (const std::string& text : tensor.strings()) proto.add_string_data(text);
    return;
  }
  std::string& raw = *proto.mutable_raw_data();
  raw.reserve(tensor.nbytes());
  tensor.visit_bytes([&](const void* data, std::size_t bytes) { raw.append(static_cast<const char*>(data), bytes); });
}

void require_text(const std::string& text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t length = character_length(std::string_view(text).substr(at));
    if (length == 0) break;
    at += length;
  }
  if (at == text.size()) return;
  throw FileError("a name in the model is not UTF-8");
}

std::optional<DType> find_element_type(std::int32_t number) {
  const bool exists = number > 0 && number <= static_cast<std::int32_t>(DType::kInt2);
  return exists ? std::optional(static_cast<DType>(number)) : std::nullopt;
}

ir::Type read_type(const pb::TypeProto& proto) {
  using Kind = ir::Type::Kind;
  if (proto.has_tensor_type()) return read_tensor_type(proto.tensor_type(), Kind::kTensor);
  if (proto.has_sequence_type() && proto.sequence_type().elem_type().has_tensor_type()) {
    return read_tensor_type(proto.sequence_type().elem_type().tensor_type(), Kind::kSequence);
  }
  if (proto.has_optional_type() && proto.optional_type().elem_type().has_tensor_type()) {
    return read_tensor_type(proto.optional_type().elem_type().tensor_type(), Kind::kOptional);
  }
  const pb::TypeProto& optional = proto.optional_type().elem_type();
  if (proto.has_optional_type() && optional.sequence_type().elem_type().has_tensor_type()) {
    return read_tensor_type(optional.sequence_type().elem_type().tensor_type(), Kind::kOptionalSequence);
  }
  return {};
}

void require_readable(const pb::ValueInfoProto& value, std::string_view role) {
  const pb::TypeProto& type = value.type();
  const auto has_tensors = [](const pb::TypeProto& elements) {
    return elements.has_tensor_type() || elements.value_case() == pb::TypeProto::VALUE_NOT_SET;
  };
  const auto has_sequence = [&](const pb::TypeProto& elements) {
    return elements.has_sequence_type() && has_tensors(elements.sequence_type().elem_type());
  };
  const bool is_optional = type.has_optional_type() && (has_tensors(type.optional_type().elem_type()) ||
                                                        has_sequence(type.optional_type().elem_type()));
  if (has_tensors(type) || has_sequence(type) || is_optional) return;
  throw FileError(
      fmt::format("{} '{}' is {}; what is read has tensors, and sequences and optionals of tensors (a classifier "
                  "of skl2onnx has them with options={{'zipmap': False}})",
                  role, value.name(),
                  type.has_map_type()             ? "a map"
                  : type.has_sequence_type()      ? "a sequence of maps or sequences"
                  : type.has_sparse_tensor_type() ? "a sparse tensor"
                                                  : "of another kind than tensor"));
}

std::int64_t ir_version(std::int64_t opset) {
  if (opset <= 22) return 10;
  if (opset <= 24) return opset - 12;
  return opset <= 27 ? 13 : 14;
}

}  // namespace exportguard::serialization
