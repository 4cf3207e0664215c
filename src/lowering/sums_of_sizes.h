#pragma once

#include "exportguard/common/symbolic.h"

namespace exportguard::lowering {

/// Whether an expression is a sum of products of symbols with coefficients from 0 up. Sizes are never negative, and so
/// is what they add up to.
bool is_sum_of_sizes(const SymExpr& expression);

/// The same, of sizes of the inputs alone: a number that tensor data tell may be below 0.
bool is_sum_of_input_sizes(const SymExpr& expression);

}  // namespace exportguard::lowering
