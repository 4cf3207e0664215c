#include "lowering/axes.h"

#include <numeric>

namespace exportguard::lowering {

std::vector<std::int64_t> counted(std::size_t count, std::int64_t first) {
  std::vector<std::int64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

std::vector<std::int64_t> other_axes(std::size_t rank, std::int64_t axis) {
  std::vector<std::int64_t> axes = counted(rank);
  std::erase(axes, axis);
  return axes;
}

std::vector<std::int64_t> inverse(const std::vector<std::int64_t>& permutation) {
  std::vector<std::int64_t> result(permutation.size());
  for (std::size_t i = 0; i < permutation.size(); ++i) {
    result[static_cast<std::size_t>(permutation[i])] = static_cast<std::int64_t>(i);
  }
  return result;
}

}  // namespace exportguard::lowering
