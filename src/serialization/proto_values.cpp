#include "serialization/proto_values.h"

#include <bit>

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
    } else {
      added.set_dim_param(dim.str());
    }
  }
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

std::int64_t ir_version(std::int64_t opset) {
  if (opset <= 22) return 10;
  if (opset <= 24) return opset - 12;
  return opset <= 27 ? 13 : 14;
}

}  // namespace exportguard::serialization
