#pragma once

#include <cstddef>

#include "exportguard/ir/graph.h"
#include "exportguard/lowering/target.h"

namespace exportguard::lowering {

/// For a target that multiplies matrices without elements wrong. Where the axis that is summed over may be empty while
/// the result is not, the result is zero there by a Where; where an axis that a Transpose moves from the first place
/// into a matrix may be empty, a Reshape keeps the Transpose from being merged into the product. Sizes that cannot be
/// zero cost nothing. A last step on an ONNX graph, in place; returns how many operands and results were written so.
std::size_t keep_empty_products(ir::Model& model, Target target);

}  // namespace exportguard::lowering
