#include "exportguard/common/sizes.h"

#include <algorithm>

namespace exportguard {

std::optional<std::int64_t> element_count(std::span<const std::int64_t> sizes) noexcept {
  if (std::ranges::find(sizes, 0) != sizes.end()) return 0;
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    if (__builtin_mul_overflow(count, size, &count)) return std::nullopt;
  }
  return count;
}

}  // namespace exportguard
