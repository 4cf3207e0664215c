#pragma once

#include <cstddef>

#include "exportguard/ir/graph.h"

namespace exportguard::optimizer {

/// Nodes that compute the same from the same become one, in nested graphs too; returns how many went. Nodes that draw
/// random numbers and nodes with a nested graph stay.
std::size_t merge_common_subexpressions(ir::Graph& graph);

}  // namespace exportguard::optimizer
