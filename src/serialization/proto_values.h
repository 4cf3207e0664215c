#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>

#include "exportguard/ir/graph.h"

namespace exportguard::serialization {

namespace pb = ONNX_NAMESPACE;

/// Whether dtype and shape are known, so that a `value_info` says something.
bool is_known(const ir::Type& type);

void fill_type(const ir::Type& type, pb::TypeProto& proto);

/// dtype and dimensions, without elements.
void fill_tensor_header(const ir::Tensor& tensor, pb::TensorProto& proto);
/// The elements inline, in ONNX's layout.
void fill_tensor_data(const ir::Tensor& tensor, pb::TensorProto& proto);

/// The IR version that belongs to a version of the ONNX domain, 10 at least: older ones lack the metadata of nodes.
std::int64_t ir_version(std::int64_t opset);

}  // namespace exportguard::serialization
