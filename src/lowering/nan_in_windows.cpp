#include "lowering/nan_in_windows.h"

#include <limits>

#include "lowering/kernels.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {

Value* places_of_nan(LoweringContext& ctx, Value* x, std::size_t spatial) {
  const std::size_t rank = ctx.rank(x);
  const std::vector<Size> sizes = ctx.sizes_of(x);
  const std::vector<Size> plane(sizes.end() - static_cast<std::ptrdiff_t>(spatial), sizes.end());
  Value* numbers = range(ctx, merged_size(ctx, x, rank - spatial, rank));
  Value* places = ctx.reshape(ctx.cast(numbers, DType::kFloat64), plane);
  return ctx.where(kernel_op(ctx, "IsNaN", {x}), places, ctx.constant(-1.0, DType::kFloat64));
}

PooledMaxima with_nan(LoweringContext& ctx, const PooledMaxima& found, Value* last) {
  Value* has_nan = ctx.op("GreaterOrEqual", {last, ctx.number_like(0, last)});
  Value* nan = ctx.number_like(std::numeric_limits<double>::quiet_NaN(), found.values);
  return {ctx.where(has_nan, nan, found.values), ctx.where(has_nan, ctx.cast(last, DType::kInt64), found.places)};
}

}  // namespace exportguard::lowering
