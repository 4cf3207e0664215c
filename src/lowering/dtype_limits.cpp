#include "lowering/dtype_limits.h"

#include <limits>
#include <utility>

namespace exportguard::lowering {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Of an integer or bool dtype; uint64 ends where int64 does.
std::pair<std::int64_t, std::int64_t> bounds(DType dtype) {
  constexpr std::int64_t kTop = std::numeric_limits<std::int64_t>::max();
  if (dtype == DType::kBool) return {0, 1};
  const int bits = bit_width(dtype);
  if (is_unsigned(dtype)) return {0, bits >= 64 ? kTop : (std::int64_t{1} << bits) - 1};
  const std::int64_t top = kTop >> (64 - bits);
  return {-top - 1, top};
}

}  // namespace

Value* lowest(LoweringContext& ctx, DType dtype) {
  return is_floating(dtype) ? ctx.constant(-kInfinity, dtype) : ctx.constant(bounds(dtype).first, dtype);
}

Value* highest(LoweringContext& ctx, DType dtype) {
  return is_floating(dtype) ? ctx.constant(kInfinity, dtype) : ctx.constant(bounds(dtype).second, dtype);
}

}  // namespace exportguard::lowering
