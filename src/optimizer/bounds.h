#pragma once

#include <optional>

#include "exportguard/optimizer/facts.h"

namespace exportguard::optimizer {

/// No element is below `low` or above `high`; elements may be NaN. Both are finite.
struct Bounds {
  double low = 0;
  double high = 0;
};

/// What constants and operators tell of the elements, before the results are rounded; nothing if they may be infinite,
/// or are not known.
std::optional<Bounds> bounds_of(const Facts& facts, const Value* value);

/// Whether numbers within the bounds stay finite in that dtype, rounded to nearest.
bool is_finite_in(const Bounds& bounds, DType dtype);

}  // namespace exportguard::optimizer
