#pragma once

#include "exportguard/ir/graph.h"

namespace exportguard::ir {

/// Checks what every layer relies on: operands are defined before they are read and visible where they are read, use
/// lists and operands agree, argument operands are in range, names of inputs, outputs and initializers are unique.
/// @throws GraphError naming the node, the operand and where it stands.
void verify(const Graph& graph);
void verify(const Model& model);

}  // namespace exportguard::ir
