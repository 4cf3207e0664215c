#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "exportguard/ir/inference.h"

namespace exportguard::ir {

/// Whether a node has what is operand `i` now and was an attribute in older opsets: files keep the opset that they
/// came with.
inline bool has_either(const InferenceContext& ctx, std::size_t i, std::string_view attribute) {
  return ctx.has(i) || ctx.find_integers(attribute) != nullptr;
}

/// The integers of whichever it has; nothing if it has none, or an operand that is not known.
inline std::optional<std::vector<std::int64_t>> either(const InferenceContext& ctx, std::size_t i,
                                                       std::string_view attribute) {
  const auto* given = ctx.find_integers(attribute);
  return given != nullptr ? std::optional(*given) : ctx.integers(i);
}

}  // namespace exportguard::ir
