#pragma once

#include <cstddef>

#include "exportguard/ir/graph.h"
#include "exportguard/lowering/target.h"

namespace exportguard::lowering {

/// For a target that makes one node of several and then gives other numbers, or does not load the file: writes what it
/// would merge so that it stays as it is. -(-x) between two nodes is x, whatever x is. Bytes that are quantized and at
/// once dequantized go from int8 to uint8, with a zero point that is 128 more. A last step on an ONNX graph, in place;
/// returns how many nodes were kept apart.
std::size_t keep_apart(ir::Model& model, Target target);

}  // namespace exportguard::lowering
