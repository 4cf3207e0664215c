#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

/// @throws FileError unless `text` is UTF-8, which Python and other readers want of names.
void require_text(const std::string& text);

/// The element type of that number; nothing if ONNX has none.
std::optional<DType> find_element_type(std::int32_t number);

/// Inverse of `fill_type`. Sizes that are not known become symbols that no other size has. Types that the IR cannot
/// tell (maps, sequences of sequences, optionals of sequences) are read as undefined.
ir::Type read_type(const pb::TypeProto& proto);

/// @throws FileError if the IR cannot tell the type of an input or output: see `read_type`. `role` is "input" or
/// "output".
void require_readable(const pb::ValueInfoProto& value, std::string_view role);

/// The IR version that belongs to a version of the ONNX domain, 10 at least: older ones lack the metadata of nodes.
std::int64_t ir_version(std::int64_t opset);

}  // namespace exportguard::serialization
