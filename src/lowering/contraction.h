#pragma once

#include <string>

#include "exportguard/lowering/context.h"

namespace exportguard::lowering {

/// MatMul as numpy defines it for every rank, in the dtype of `a`: integers wrap around as torch's do.
Value* matmul(LoweringContext& ctx, Value* a, Value* b);

/// `factor * value`; the value itself for 1.
Value* times_factor(LoweringContext& ctx, Value* value, double factor);

/// A tensor whose axes have letters, as in an einsum.
struct Labelled {
  Value* value;
  std::string labels;
};

/// The same tensor with its axes in that order; axes that `labels` leaves out are summed.
Labelled arranged(LoweringContext& ctx, const Labelled& operand, const std::string& labels);

/// The sum over every label that is not in `kept` of the products of both tensors. A label of both has the same size in
/// both, or is 1 in one of them. No tensor has a label twice. The order of the result's labels is open.
Labelled contract(LoweringContext& ctx, Labelled a, Labelled b, const std::string& kept);

}  // namespace exportguard::lowering
