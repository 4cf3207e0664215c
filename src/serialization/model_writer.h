#pragma once

#include <cstddef>
#include <string>

#include "exportguard/ir/graph.h"
#include "exportguard/serialization/onnx_file.h"
#include "serialization/external_data.h"

namespace exportguard::serialization {

/// A ModelProto in two parts that follow each other.
struct ModelBytes {
  std::string head;   ///< all but the graph, and the graph's tag and length
  std::string graph;  ///< the GraphProto

  std::size_t size() const { return head.size() + graph.size(); }
};

/// The model as protobuf writes it; tensors that `layout` places are references into the data file.
/// @throws GraphError if a torch-level node is left, or the model names no version of the ONNX domain.
ModelBytes serialize(const ir::Model& model, const SaveOptions& options, const DataLayout& layout);

}  // namespace exportguard::serialization
