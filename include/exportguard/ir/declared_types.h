#pragma once

#include "exportguard/ir/graph.h"

namespace exportguard::ir {

/// Infers the types of a model that somebody else may have written or edited: nodes that no inference fits keep what
/// the file says, and so do calls of local functions. Names that the file gives to sizes stay. A file that contradicts
/// what its operators make of the sizes of its inputs, as it does after a tool has freed an axis, is believed in dtypes
/// and ranks alone. Functions' bodies are left as they are. Linear in the nodes.
void infer_declared(Model& model);

}  // namespace exportguard::ir
