#pragma once

#include "lowering/matrices.h"

/// Jacobi's methods: a Loop turns the pair of axes that is farthest from the goal until all are close. float64.
namespace exportguard::lowering {

/// A = V diag(values) Vᵀ of symmetric matrices, the values in ascending order.
struct Eigen {
  Value* values;
  Value* vectors;
};
Eigen symmetric_eigen(LoweringContext& ctx, Value* a);

/// A V = W with columns of W that are orthogonal, the longest first.
struct OrthogonalColumns {
  Value* columns;  ///< W
  Value* lengths;  ///< the singular values, and zeros where there are more columns than rows
  Value* v;
};
OrthogonalColumns orthogonalized(LoweringContext& ctx, Value* a);

}  // namespace exportguard::lowering
