#pragma once

#include "exportguard/ir/graph.h"
#include "operators/facts.h"

namespace exportguard::importer {

/// Puts the bodies of higher-order operators that only set a mode (`wrap_with_set_grad_enabled`, `wrap_with_autocast`,
/// `hints_wrapper`, …) in the place of the operator, in nested graphs too; so does a subgraph that writes into memory.
/// What autocast would convert is converted.
void inline_bodies(ir::Graph& graph, operators::OperatorTable& operators);

}  // namespace exportguard::importer
