#pragma once

#include <cstddef>

#include "exportguard/ir/graph.h"

namespace exportguard::optimizer {

/// Nodes that compute the same from the same become one, in nested graphs too; returns how many went. Nodes that draw
/// random numbers, calls of functions that do, nodes of domains that `model` has no function for and nodes with a
/// nested graph stay.
std::size_t merge_common_subexpressions(const ir::Model& model, ir::Graph& graph);

/// Calls of local functions become what the functions do, as far as the function has the model's opsets and no
/// attributes; functions that nobody calls any more go. Returns how many calls went.
/// @throws GraphError if a function calls itself, a call does not fit its function, or the nodes become too many.
std::size_t inline_functions(ir::Model& model);

}  // namespace exportguard::optimizer
