#pragma once

#include <cstddef>

#include "exportguard/ir/graph.h"
#include "exportguard/lowering/target.h"

namespace exportguard::lowering {

/// Casts around every node that the target has no bfloat16 kernel for: it computes in float32, and what it gives is
/// rounded to bfloat16, as torch does it in each of its operators. Types of the model's inputs, weights and outputs
/// stay. The last step on an ONNX graph, in place; returns how many values were cast.
std::size_t widen_bfloat16(ir::Model& model, Target target);

}  // namespace exportguard::lowering
