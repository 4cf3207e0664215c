#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/kernels.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

/// Both operands in the dtype that torch compares them in, or the nearest one that the target compares.
std::pair<Value*, Value*> comparable(LoweringContext& ctx, std::string_view op, std::size_t a, std::size_t b) {
  const DType dtype = kernel_dtype(ctx, op, ctx.promoted({a, b}));
  return {ctx.scalar(a, dtype), ctx.scalar(b, dtype)};
}

// ------------------------------------------------------------------------------------------------ places in sorted
// lists

/// How many elements of the last axis of `list` come before each of `values`: those less than it, or not more. The list
/// is a vector, or has the axes of the values before its last one.
Value* places(LoweringContext& ctx, Value* list, Value* values, bool is_right) {
  const bool is_vector = ctx.rank(list) == 1;
  const auto value_rank = static_cast<std::int64_t>(ctx.rank(values));
  Value* lists = is_vector ? list : ctx.unsqueeze(list, {value_rank - 1});
  Value* searched = ctx.unsqueeze(values, {value_rank});
  Value* precedes = ctx.op(is_right ? "LessOrEqual" : "Less", {lists, searched});
  // NaN is behind every element.
  if (is_floating(values->dtype())) precedes = ctx.op("Or", {precedes, kernel_op(ctx, "IsNaN", {searched})});
  return ctx.reduce("ReduceSum", ctx.cast(precedes, DType::kInt64), {value_rank}, false);
}

/// The sequence in order, if a second tensor says in what order its elements are.
Value* ordered(LoweringContext& ctx, Value* sequence, Value* order) {
  return order == nullptr ? sequence : ctx.op("GatherElements", {sequence, order}, {{"axis", -1}});
}

void lower_searchsorted(LoweringContext& ctx) {
  const auto [sequence, values] = comparable(ctx, "Less", 0, 1);
  const bool is_right = ctx.flag(3) || (ctx.has(4) && ctx.text(4) == "right");
  ctx.result(places(ctx, ordered(ctx, sequence, ctx.find_input(5)), values, is_right));
}

void lower_bucketize(LoweringContext& ctx) {
  const auto [values, boundaries] = comparable(ctx, "Less", 0, 1);
  ctx.result(places(ctx, boundaries, values, ctx.flag(3)));
}

// ------------------------------------------------------------------------------------------------ membership

void lower_isin(LoweringContext& ctx) {
  const auto [elements, tested] = comparable(ctx, "Equal", 0, 1);
  const auto rank = static_cast<std::int64_t>(ctx.rank(elements));
  Value* list = ctx.rank(tested) == 1 ? tested : ctx.reshape(tested, {Size(-1)});
  Value* hits = ctx.cast(ctx.op("Equal", {ctx.unsqueeze(elements, {rank}), list}), DType::kInt32);
  Value* count = ctx.reduce("ReduceSum", hits, {rank}, false);  // of an empty list as well, where a maximum has none
  Value* is_in = ctx.cast(count, DType::kBool);
  ctx.result(ctx.flag(3) ? ctx.op("Not", {is_in}) : is_in);
}

// ------------------------------------------------------------------------------------------------ most frequent
// element

Value* numbered(LoweringContext& ctx, Value* x, std::int64_t axis) {
  Value* numbers = range(ctx, size_of(ctx, x, axis));
  std::vector<std::int64_t> behind;
  for (std::int64_t other = axis + 1; other < static_cast<std::int64_t>(ctx.rank(x)); ++other)
    behind.push_back(other - axis);
  return ctx.unsqueeze(numbers, behind);
}

/// The least of the most frequent elements along an axis, and the last place where it stands.
void lower_mode(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  if (ctx.rank(x) == 0) return ctx.results({x, ctx.constant(0, DType::kInt64)});
  const auto rank = static_cast<std::int64_t>(ctx.rank(x));
  const std::int64_t axis = ctx.axis(1, ctx.rank(x));
  const bool keeps = ctx.flag(2);
  Value* ordered_x =
      ctx.op_many("TopK", {ctx.cast(x, kernel_dtype(ctx, "TopK", x->dtype())), as_dim(ctx, size_of(ctx, x, axis))}, 2,
                  {{"axis", axis}, {"largest", 0}})
          .front();

  // Every element against every other one along the axis: how often each occurs.
  Value* last = ctx.unsqueeze(ctx.swap_axes(ordered_x, axis, rank - 1), {rank});
  Value* equal = ctx.op("Equal", {last, ctx.swap_axes(last, rank - 1, rank)});
  Value* counts = ctx.reduce("ReduceSum", ctx.cast(equal, DType::kInt64), {rank}, false);
  Value* best = ctx.op("ArgMax", {counts}, {{"axis", rank - 1}, {"keepdims", 1}});
  Value* mode = ctx.op("GatherElements", {ordered_x, ctx.swap_axes(best, axis, rank - 1)}, {{"axis", axis}});

  Value* is_mode = ctx.op("Equal", {ctx.cast(x, mode->dtype()), mode});
  Value* places_of_mode = ctx.where(is_mode, numbered(ctx, x, axis), ctx.constant(-1, DType::kInt64));
  Value* place = ctx.reduce("ReduceMax", places_of_mode, {axis}, keeps);
  ctx.results({keeps ? mode : ctx.squeeze(mode, {axis}), place});
}

}  // namespace

void populate_searching(LoweringTable& table) {
  table.add({"aten.searchsorted.Tensor", "aten.searchsorted.Scalar"}, lower_searchsorted);
  table.add({"aten.bucketize.Tensor", "aten.bucketize.Scalar"}, lower_bucketize);
  table.add({"aten.isin.Tensor_Tensor", "aten.isin.Tensor_Scalar", "aten.isin.Scalar_Tensor"}, lower_isin);
  table.add("aten.mode.default", lower_mode);
}

}  // namespace exportguard::lowering
