#pragma once

#include "evaluator/table.h"
#include "exportguard/ir/graph.h"

namespace exportguard::evaluator {

/// How a torch-level node is run: a row of the table for what torch has no operator for (arithmetic on SymInts,
/// bodies), else through torch's dispatcher. Null if neither has it. Operators that write to their operands are not
/// run: functionalize the program first.
Operator find_torch_operator(const ir::Node& node);

}  // namespace exportguard::evaluator
