#include "lowering/checks.h"

#include "lowering/axes.h"
#include "lowering/reductions.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {

Value* stops_unless(LoweringContext& ctx, Value* holds, Value* numbers) {
  Value* place = ctx.where(holds, ctx.constant(0, DType::kInt64), ctx.constant(1, DType::kInt64));
  return ctx.op("Add", {numbers, ctx.gather(ctx.ints({0}), place, 0)});
}

Value* whole_if(LoweringContext& ctx, Value* holds, Value* x) {
  if (holds == nullptr) return x;
  // The whole is the one entry of an axis: of a number that is added, what is known of integers would tell that it is
  // 0.
  Value* place = ctx.where(holds, ctx.constant(0, DType::kInt64), ctx.constant(1, DType::kInt64));
  return ctx.gather(ctx.unsqueeze(x, {0}), place, 0);
}

Value* find_entries(LoweringContext& ctx, Value* x, const std::vector<std::int64_t>& axes, const std::string& reason) {
  Size count = 1;
  for (const std::int64_t axis : axes) {
    const auto known = ctx.size(x, axis).constant();
    ctx.require(known.value_or(1) > 0, reason);
    if (!known) count = multiply(ctx, count, size_of(ctx, x, axis));
  }
  return count.number() ? nullptr : ctx.op("Greater", {as_scalar(ctx, count), ctx.constant(0, DType::kInt64)});
}

Value* none_below(LoweringContext& ctx, Value* numbers, std::int64_t least) {
  return all_true(ctx, ctx.op("GreaterOrEqual", {numbers, ctx.constant(least, DType::kInt64)}), {});
}

Value* never_falls(LoweringContext& ctx, Value* numbers) {
  Value* later = ctx.slice(numbers, -1, 1, kEnd);
  return none_below(ctx, ctx.op("Sub", {later, ctx.slice(numbers, -1, 0, -1)}), 0);
}

}  // namespace exportguard::lowering
