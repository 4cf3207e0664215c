#pragma once

#include <google/protobuf/arena.h>
#include <onnx/onnx_pb.h>

#include "exportguard/ir/graph.h"
#include "exportguard/serialization/onnx_file.h"
#include "serialization/external_data.h"

namespace exportguard::serialization {

/// The model as a ModelProto that lives in `arena`; tensors that `layout` places are references into the data file.
/// @throws GraphError if a torch-level node is left, or the model names no version of the ONNX domain.
const ONNX_NAMESPACE::ModelProto& to_proto(const ir::Model& model, const SaveOptions& options, const DataLayout& layout,
                                           google::protobuf::Arena& arena);

}  // namespace exportguard::serialization
