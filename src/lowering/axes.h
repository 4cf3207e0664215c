#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace exportguard::lowering {

/// As a bound of a slice: behind the last element.
constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();

/// `count` numbers from `first` on.
std::vector<std::int64_t> counted(std::size_t count, std::int64_t first = 0);

/// Every axis of a tensor of that rank but one.
std::vector<std::int64_t> other_axes(std::size_t rank, std::int64_t axis);

/// The permutation that undoes `permutation`.
std::vector<std::int64_t> inverse(const std::vector<std::int64_t>& permutation);

}  // namespace exportguard::lowering
