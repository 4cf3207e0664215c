#include "lowering/reductions.h"

#include <algorithm>
#include <limits>

#include "lowering/elementwise.h"
#include "lowering/integer_arithmetic.h"
#include "lowering/kernels.h"

namespace exportguard::lowering {
namespace {

/// 0 and 1 as uint8, which reduces without elements to what `any` and `all` of nothing are.
Value* flags(LoweringContext& ctx, Value* x) { return ctx.cast(as_bool(ctx, x), DType::kUint8); }

Value* is_nan(LoweringContext& ctx, Value* x) { return ctx.cast(kernel_op(ctx, "IsNaN", {x}), DType::kUint8); }

Value* arg_extreme(LoweringContext& ctx, Value* x, Extreme extreme, std::int64_t axis, bool keepdim) {
  const std::string_view op = extreme == Extreme::kLargest ? "ArgMax" : "ArgMin";
  return kernel_op(ctx, op, {x}, {{"axis", axis}, {"keepdims", static_cast<std::int64_t>(keepdim)}});
}

/// Whether a sum may leave the integers that a double holds. One of numbers that were 32 bits wide or less does so from
/// two million elements on, one of bools never.
bool needs_integers(const Value* x) {
  if (x->dtype() != DType::kInt64) return false;
  const ir::Node* producer = x->producer();
  const bool was_cast = producer != nullptr && producer->op() == "Cast";
  return !was_cast || producer->input(0).dtype() == DType::kInt64 || is_floating(producer->input(0).dtype());
}

}  // namespace

Value* extreme_value(LoweringContext& ctx, Value* x, Extreme extreme, const ReducedAxes& over) {
  const std::string_view op = extreme == Extreme::kLargest ? "ReduceMax" : "ReduceMin";
  Value* found = kernel_reduce(ctx, op, x, over.axes, over.keepdim);
  if (!is_floating(x->dtype())) return found;
  Value* has_nan = as_bool(ctx, ctx.reduce("ReduceMax", is_nan(ctx, x), over.axes, over.keepdim));
  return ctx.where(has_nan, ctx.number_like(std::numeric_limits<double>::quiet_NaN(), found), found);
}

Value* extreme_index(LoweringContext& ctx, Value* x, Extreme extreme, std::int64_t axis, bool keepdim) {
  if (ctx.rank(x) == 0) return ctx.constant(0, DType::kInt64);
  Value* index = arg_extreme(ctx, x, extreme, axis, keepdim);
  if (!is_floating(x->dtype())) return index;
  Value* nan = is_nan(ctx, x);
  Value* has_nan = as_bool(ctx, ctx.reduce("ReduceMax", nan, {axis}, keepdim));
  return ctx.where(has_nan, arg_extreme(ctx, nan, Extreme::kLargest, axis, keepdim), index);
}

Value* sum(LoweringContext& ctx, Value* x, const ReducedAxes& over) {
  if (needs_integers(x)) return integer_sum(ctx, x, over);
  const bool may_wrap = is_integral(x->dtype()) && x->dtype() != DType::kInt64;  // a sum of doubles saturates instead
  if (may_wrap) return ctx.cast(sum(ctx, ctx.cast(x, DType::kInt64), over), x->dtype());
  return kernel_reduce(ctx, "ReduceSum", x, over.axes, over.keepdim);
}

Value* product(LoweringContext& ctx, Value* x, const ReducedAxes& over) {
  if (x->dtype() == DType::kInt64) return integer_product(ctx, x, over);
  return kernel_reduce(ctx, "ReduceProd", x, over.axes, over.keepdim);
}

Value* any_true(LoweringContext& ctx, Value* x, const ReducedAxes& over) {
  return as_bool(ctx, ctx.reduce("ReduceMax", flags(ctx, x), over.axes, over.keepdim));
}

Value* all_true(LoweringContext& ctx, Value* x, const ReducedAxes& over) {
  return as_bool(ctx, ctx.reduce("ReduceMin", flags(ctx, x), over.axes, over.keepdim));
}

Value* reduced_count(LoweringContext& ctx, Value* x, const std::vector<std::int64_t>& axes, DType dtype) {
  std::int64_t known = 1;
  Value* total = nullptr;
  const auto count = [&](std::int64_t axis) {
    if (const auto number = ctx.size(x, axis).constant()) {
      known *= *number;
      return;
    }
    Value* size = ctx.dim_scalar(x, axis);
    total = total ? ctx.op("Mul", {total, size}) : size;
  };
  std::ranges::for_each(axes, count);
  const auto rank = static_cast<std::int64_t>(ctx.rank(x));
  for (std::int64_t axis = 0; axes.empty() && axis < rank; ++axis) count(axis);
  if (total == nullptr) return ctx.constant(known, dtype);
  if (known != 1) total = ctx.op("Mul", {total, ctx.constant(known, DType::kInt64)});
  return ctx.cast(total, dtype);
}

Value* mean(LoweringContext& ctx, Value* x, const ReducedAxes& over) {
  Value* count = reduced_count(ctx, x, over.axes, DType::kInt64);
  const ir::Tensor* known = ctx.find_constant(count);
  const bool is_never_empty = known != nullptr && known->to_ints().front() != 0;
  if (is_never_empty) return kernel_reduce(ctx, "ReduceMean", x, over.axes, over.keepdim);
  // ReduceMean of nothing gives 0.
  Value* sum = kernel_reduce(ctx, "ReduceSum", ctx.widened(x), over.axes, over.keepdim);
  return ctx.op("Div", {sum, ctx.cast(count, sum->dtype())});
}

}  // namespace exportguard::lowering
