#pragma once

#include <cstddef>

#include "exportguard/ir/graph.h"
#include "exportguard/lowering/target.h"

namespace exportguard::lowering {

/// For a target that makes a number by which a product of float64 matrices is multiplied an attribute, which has the
/// digits of a float32: x · c becomes -(-x · c), wherever c has more digits and a product of matrices may be the next
/// node. A last step on an ONNX graph, in place; returns how many there were.
std::size_t keep_factors(ir::Model& model, Target target);

}  // namespace exportguard::lowering
