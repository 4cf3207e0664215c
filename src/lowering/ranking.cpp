#include "lowering/ranking.h"

#include <limits>

#include "lowering/kernels.h"
#include "lowering/size_arithmetic.h"
#include "lowering/vectors.h"

namespace exportguard::lowering {
namespace {

Ranked top_k(LoweringContext& ctx, Value* keys, Value* count, const Ranking& ranking) {
  const std::vector<Value*> found =
      ctx.op_many("TopK", {keys, count}, 2,
                  {{"axis", ranking.axis}, {"largest", static_cast<std::int64_t>(ranking.is_descending)}});
  return {found[0], found[1]};
}

Value* elements_at(LoweringContext& ctx, Value* x, Value* positions, std::int64_t axis) {
  return ctx.op("GatherElements", {x, positions}, {{"axis", axis}});
}

/// float64 has numbers between the greatest float32 and infinity: infinity becomes one of them, NaN becomes infinity.
Value* wide_keys(LoweringContext& ctx, Value* x) {
  Value* wide = ctx.cast(x, DType::kFloat64);
  Value* finite = ctx.op("Min", {wide, ctx.constant(1e300, DType::kFloat64)});
  Value* infinity = ctx.constant(std::numeric_limits<double>::infinity(), DType::kFloat64);
  return ctx.where(ctx.op("IsNaN", {wide}), infinity, finite);
}

/// float64 has no wider dtype: by value with infinity for NaN, then NaN and numbers apart, which keeps the order.
Value* positions_of_doubles(LoweringContext& ctx, Value* x, const Ranking& ranking) {
  Value* is_nan = ctx.op("IsNaN", {x});
  Value* numbers = ctx.where(is_nan, ctx.number_like(std::numeric_limits<double>::infinity(), x), x);
  numbers->set_type(x->type());
  Value* length = as_dim(ctx, size_of(ctx, x, ranking.axis));
  Value* by_value = top_k(ctx, numbers, length, ranking).positions;
  Value* flags = elements_at(ctx, ctx.cast(is_nan, DType::kInt32), by_value, ranking.axis);
  return elements_at(ctx, by_value, top_k(ctx, flags, length, ranking).positions, ranking.axis);
}

Ranked ranked_floats(LoweringContext& ctx, Value* x, Value* count, const Ranking& ranking) {
  Value* positions = nullptr;
  if (x->dtype() == DType::kFloat64) {
    positions = positions_of_doubles(ctx, x, ranking);
    positions = ctx.slice(positions, ranking.axis, 0, Size(count));
  } else {
    positions = top_k(ctx, wide_keys(ctx, x), count, ranking).positions;
  }
  return {elements_at(ctx, x, positions, ranking.axis), positions};
}

Ranked ranked_numbers(LoweringContext& ctx, Value* x, Value* count, const Ranking& ranking) {
  const Ranked found = top_k(ctx, ctx.cast(x, kernel_dtype(ctx, "TopK", x->dtype())), count, ranking);
  return {ctx.cast(found.values, x->dtype()), found.positions};
}

}  // namespace

Ranked ranked(LoweringContext& ctx, Value* x, const Size& count, const Ranking& ranking) {
  Value* vector = as_vector(ctx, x);
  const auto rank = is_floating(x->dtype()) ? ranked_floats : ranked_numbers;
  const Ranked found = rank(ctx, vector, as_dim(ctx, count), ranking);
  if (ctx.rank(x) != 0) return found;
  return {ctx.squeeze(found.values, {0}), ctx.squeeze(found.positions, {0})};
}

Ranked fully_ranked(LoweringContext& ctx, Value* x, const Ranking& ranking) {
  return ranked(ctx, x, ctx.rank(x) == 0 ? Size(1) : size_of(ctx, x, ranking.axis), ranking);
}

}  // namespace exportguard::lowering
