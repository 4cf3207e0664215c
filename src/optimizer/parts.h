#pragma once

#include <optional>

#include "exportguard/optimizer/facts.h"

namespace exportguard::optimizer {

/// Every `step`-th element of one axis of `from`, from `start` up to but without `end`, both within the axis.
struct Part {
  Value* from = nullptr;
  std::int64_t axis = 0;
  std::int64_t start = 0;
  std::int64_t end = 0;
  std::int64_t step = 1;
  std::int64_t size = 0;  ///< of the axis

  std::int64_t count() const { return end > start ? (end - start + step - 1) / step : 0; }
  bool is_range(std::int64_t first, std::int64_t last) const { return step == 1 && start == first && end == last; }
};

/// What a Slice of one axis, a Gather of one position or an output of a Split shows of its operand; nothing unless the
/// numbers are known and the step is positive.
std::optional<Part> part_of(const Facts& facts, const Value* value);

}  // namespace exportguard::optimizer
