#pragma once

#include "exportguard/ir/graph.h"

namespace exportguard::ir {

/// Infers the types of a model that somebody else may have written or edited: nodes that no inference fits keep what
/// the file says. Names that the file gives to sizes stay. A file that contradicts what its operators make of the sizes
/// of its inputs, as it does after a tool has freed an axis, is believed in dtypes and ranks alone. A function's body
/// has what holds at every call, whatever the file says of it; calls have what the body makes of their operands. Linear
/// in the nodes, where each function is called with operands of a few types.
void infer_declared(Model& model);

/// Forgets what a file says of values within local functions, before their nodes take the place of calls.
void forget_types_of_functions(Model& model);

}  // namespace exportguard::ir
