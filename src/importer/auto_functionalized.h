#pragma once

#include "exportguard/ir/graph.h"

namespace exportguard::importer {

/// `run_decompositions` wraps an operator that writes into its arguments: `auto_functionalized(_v2)` takes the tensors
/// that are written and returns new ones behind the operator's own results. Puts copies, the views that the operator is
/// given of them, and the operator itself in its place.
/// @throws ImportError if the operator is unknown, or the wrapper says of a written argument nothing that is known.
void unwrap_auto_functionalized(ir::Graph& graph);

}  // namespace exportguard::importer
