#pragma once

#include <functional>
#include <unordered_set>
#include <vector>

#include "exportguard/evaluator/value.h"
#include "exportguard/ir/graph.h"

namespace exportguard::validation {

using Values = std::unordered_set<const ir::Value*>;

/// The part of a main graph that makes one value of others.
struct Segment {
  std::vector<const ir::Node*> nodes;      ///< in the order of the graph
  std::vector<const ir::Value*> frontier;  ///< values that it reads and does not make, constants apart; in that order
};

/// What makes `target` of values in `given` and of inputs of the graph.
Segment segment_behind(const ir::Value& target, const Values& given);

/// A model that makes `outputs` of `model`'s main graph, in order, of its inputs, or with `inputs` of these values
/// instead. Weights are shared.
ir::Model cut_out(const ir::Model& model, const std::vector<const ir::Value*>& outputs,
                  const std::vector<const ir::Value*>* inputs = nullptr);

/// Declares the sizes of the inputs to be those of the values.
void fix_inputs(ir::Model& model, const std::vector<evaluator::Value>& values);

}  // namespace exportguard::validation
