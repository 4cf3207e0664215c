#pragma once

#include <cstddef>

#include "exportguard/evaluator/value.h"
#include "exportguard/ir/graph.h"

namespace exportguard::validation {

/// What an operator of torch leaves open: which of equal values it takes (`sort`, `argsort`, `topk`, `kthvalue`,
/// `median`, `mode` promise nothing of it, ONNX's TopK takes the lowest index), and the order of a `topk` that is not
/// sorted.
bool leaves_a_choice(const ir::Value& expected);

/// Whether `got` is another choice, as right as `expected`, which a node made of `operand`: positions of the same
/// values, each once where they are those of several.
bool is_another_choice(const ir::Value& value, const evaluator::Value& operand, const evaluator::Value& expected,
                       const evaluator::Value& got);

}  // namespace exportguard::validation
