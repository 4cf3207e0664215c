#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace exportguard {

/// How many elements a tensor of these sizes has: 0 if one of them is 0, whatever the others are; nothing where 64 bits
/// do not hold the number. What a file says of sizes is multiplied here and nowhere else.
std::optional<std::int64_t> element_count(std::span<const std::int64_t> sizes) noexcept;

}  // namespace exportguard
