#include "lowering/checks.h"

#include "lowering/axes.h"
#include "lowering/reductions.h"

namespace exportguard::lowering {

Value* stops_unless(LoweringContext& ctx, Value* holds, Value* numbers) {
  Value* place = ctx.where(holds, ctx.constant(0, DType::kInt64), ctx.constant(1, DType::kInt64));
  return ctx.op("Add", {numbers, ctx.gather(ctx.ints({0}), place, 0)});
}

Value* none_below(LoweringContext& ctx, Value* numbers, std::int64_t least) {
  return all_true(ctx, ctx.op("GreaterOrEqual", {numbers, ctx.constant(least, DType::kInt64)}), {});
}

Value* never_falls(LoweringContext& ctx, Value* numbers) {
  Value* later = ctx.slice(numbers, -1, 1, kEnd);
  return none_below(ctx, ctx.op("Sub", {later, ctx.slice(numbers, -1, 0, -1)}), 0);
}

}  // namespace exportguard::lowering
