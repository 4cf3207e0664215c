#pragma once

#include "exportguard/ir/graph.h"

namespace exportguard::importer {

/// Some operators write although their schema does not say so: `batch_norm` in training mode updates the running
/// statistics. Puts the operator in their place whose schema does.
void reveal_writes(ir::Graph& graph);

}  // namespace exportguard::importer
