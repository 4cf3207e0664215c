#include "lowering/wide_arithmetic.h"

namespace exportguard::lowering::wide {

Value* polynomial(LoweringContext& ctx, Value* x, std::span<const double> coefficients) {
  Value* total = number(ctx, coefficients.back());
  for (std::size_t i = coefficients.size() - 1; i-- > 0;) {
    total = plus(ctx, product(ctx, total, x), coefficients[i]);
  }
  return total;
}

Value* fitted(LoweringContext& ctx, Value* x, const Fit& fit) {
  const double half = (fit.high - fit.low) / 2;
  return polynomial(ctx, plus(ctx, times(ctx, x, 1 / half), -(fit.low / half + 1)), fit.coefficients);
}

}  // namespace exportguard::lowering::wide
