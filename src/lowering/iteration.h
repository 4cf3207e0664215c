#pragma once

#include <functional>
#include <vector>

#include "exportguard/lowering/context.h"

namespace exportguard::lowering {

/// Makes `values` the outputs of the graph that the context stands in. An output of a body must be computed in it and
/// appear once, so that a value from outside, an input and a value returned twice get an Identity.
void return_from(LoweringContext& ctx, ir::Graph& graph, const std::vector<Value*>& values);

/// What one step of a loop leaves for the next.
struct Step {
  std::vector<Value*> state;           ///< of the same number, dtypes and shapes as before the step
  Value* continues = nullptr;          ///< bool of rank 0: whether there is another one; null: there is
  std::vector<Value*> collected = {};  ///< what the step gives besides, of every step with the same type
};

/// Writes one step: `iteration` is an int64 of rank 0 that counts from 0.
using WriteStep = std::function<Step(Value* iteration, const std::vector<Value*>& state)>;

/// A Loop of at most `count` steps (an int64 of rank 0) over `initial`; what the last step left, then what the steps
/// give besides, `collected` tensors of all steps along a new first axis. `write` is called once.
std::vector<Value*> repeated(LoweringContext& ctx, Value* count, const std::vector<Value*>& initial,
                             const WriteStep& write, std::size_t collected = 0);

}  // namespace exportguard::lowering
