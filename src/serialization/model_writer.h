#pragma once

#include <onnx/onnx_pb.h>

#include "exportguard/ir/graph.h"
#include "exportguard/serialization/onnx_file.h"
#include "serialization/external_data.h"

namespace exportguard::serialization {

/// The model as a ModelProto; tensors that `layout` places are references into the data file.
/// @throws GraphError if a torch-level node is left, or the model names no version of the ONNX domain.
ONNX_NAMESPACE::ModelProto to_proto(const ir::Model& model, const SaveOptions& options, const DataLayout& layout);

}  // namespace exportguard::serialization
