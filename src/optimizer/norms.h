#pragma once

#include <optional>

#include "exportguard/optimizer/facts.h"

namespace exportguard::optimizer {

/// x / √(mean(x²) + ε) over one axis, maybe times a factor.
struct RootMeanSquare {
  Value* x = nullptr;
  double epsilon = 0;
  std::int64_t size = 0;    ///< of the axis, not 0
  Value* factor = nullptr;  ///< stretches nothing; null if there is none
};

/// What `node`, a Mul by 1 / √y or a Div by √y, normalizes, in float32; nothing and a literal `reason` if it does not.
std::optional<RootMeanSquare> root_mean_square_of(const Facts& facts, const ir::Node& node, const char*& reason,
                                                  std::int64_t axis = -1);

/// The operand x of x - mean(x) over that axis; null if the value is something else.
Value* centered(const Facts& facts, const Value* value, std::int64_t axis = -1);

/// A constant of floats, all of them 1.
bool is_all_ones(const Facts& facts, const Value* value);

}  // namespace exportguard::optimizer
