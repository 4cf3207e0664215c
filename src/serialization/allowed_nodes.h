#pragma once

#include <onnx/onnx_pb.h>

namespace exportguard::serialization {

/// Refuses nodes that ONNX's own operators do not allow, in nested graphs and functions as well: attributes that an
/// operator of that version does not have, of another type or left out, and more or fewer inputs and outputs. A runtime
/// refuses them, too; what a fusion makes of one would be another model.
/// @throws FileError naming the node.
void require_allowed_nodes(const ONNX_NAMESPACE::ModelProto& model);

}  // namespace exportguard::serialization
