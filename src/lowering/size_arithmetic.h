#pragma once

#include <cstdint>
#include <optional>

#include "exportguard/lowering/context.h"

namespace exportguard::lowering {

// Arithmetic on sizes of a shape: numbers are folded, anything else becomes int64[1] operators.

Size size_of(LoweringContext& ctx, Value* value, std::int64_t axis);  ///< a number where the type tells it
Size add(LoweringContext& ctx, const Size& a, const Size& b);
Size subtract(LoweringContext& ctx, const Size& a, const Size& b);
Size multiply(LoweringContext& ctx, const Size& a, const Size& b);
Size maximum(LoweringContext& ctx, const Size& a, const Size& b);
/// Where the sizes of two broadcast operands meet: a known size other than 1 decides. Of two unknown ones, as rows that
/// two masks count, one may be 1 and the other one not, which may be 0: `Max(a, b) * Min(1, a, b)`.
Size broadcast(LoweringContext& ctx, const Size& a, const Size& b);
/// Product of the sizes of the axes `first` to `last`, without `last`; 1 for none.
Size merged_size(LoweringContext& ctx, Value* value, std::size_t first, std::size_t last);

/// A position on an axis of `size`, counted from 0: `size + position` for a negative one.
Size from_start(LoweringContext& ctx, const Size& position, const Size& size);

Value* as_dim(LoweringContext& ctx, const Size& size);     ///< int64[1]
Value* as_scalar(LoweringContext& ctx, const Size& size);  ///< int64 of rank 0
Value* range(LoweringContext& ctx, const Size& count);     ///< int64[count]: 0, 1, …

/// `sizes` with the entries `first` to `last` (without `last`) replaced by one.
std::vector<Size> with_merged(std::vector<Size> sizes, std::size_t first, std::size_t last, const Size& merged);

}  // namespace exportguard::lowering
