#include <ATen/core/Tensor.h>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/iteration.h"
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

// A list is a vector, or has the axes of the values before its last one.

/// Whether the list is known and each element is at least the one before it; one with NaN is not.
bool is_in_order(LoweringContext& ctx, const Value* list) {
  const ir::Tensor* known = ctx.find_constant(list);
  if (known == nullptr || ctx.rank(list) != 1) return false;
  const at::Tensor& elements = known->aten();
  return elements.slice(0, 1).ge(elements.slice(0, 0, -1)).all().item<bool>() &&
         elements.eq(elements).all().item<bool>();
}

/// How many elements of a list in order come before each of `values`: those less than it, or not more.
Value* counted_places(LoweringContext& ctx, Value* list, Value* values, bool is_right) {
  const auto value_rank = static_cast<std::int64_t>(ctx.rank(values));
  Value* searched = ctx.unsqueeze(values, {value_rank});
  Value* precedes = ctx.op(is_right ? "LessOrEqual" : "Less", {list, searched});
  // NaN is behind every element.
  if (is_floating(values->dtype())) precedes = ctx.op("Or", {precedes, kernel_op(ctx, "IsNaN", {searched})});
  return ctx.reduce("ReduceSum", ctx.cast(precedes, DType::kInt64), {value_rank}, false);
}

/// The list and one element more: where a search ends may be looked at.
Value* with_one_more(LoweringContext& ctx, Value* list) {
  std::vector<Size> sizes = ctx.sizes_of(list);
  sizes.back() = 1;
  return ctx.concat({list, ctx.filled(sizes, ctx.number_like(0, list))}, static_cast<std::int64_t>(sizes.size()) - 1);
}

/// How often a list of that many elements is halved until nothing is left: the binary digits of the number.
Value* halvings(LoweringContext& ctx, Value* count) {
  std::vector<std::int64_t> powers;
  for (int digits = 0; digits < 62; ++digits) powers.push_back(std::int64_t{1} << digits);
  Value* reached = ctx.op("LessOrEqual", {ctx.ints(powers), count});
  return ctx.reduce("ReduceSum", ctx.cast(reached, DType::kInt64), {0}, false);
}

/// By halving, as torch does: where a list has NaN or is in no order, what is found depends on what is looked at.
Value* searched_places(LoweringContext& ctx, Value* list, Value* values, bool is_right) {
  const auto last = static_cast<std::int64_t>(ctx.rank(list)) - 1;
  Value* elements = with_one_more(ctx, list);
  const auto element_at = [&](Value* place) {
    return last == 0 ? ctx.gather(elements, place, 0) : ctx.op("GatherElements", {elements, place}, {{"axis", last}});
  };
  const auto halve = [&](Value*, const std::vector<Value*>& bounds) -> Step {
    Value* is_open = ctx.op("Less", {bounds[0], bounds[1]});
    Value* half = ctx.op("Div", {ctx.op("Sub", {bounds[1], bounds[0]}), ctx.constant(2, DType::kInt64)});
    Value* middle = ctx.op("Add", {bounds[0], half});
    Value* is_behind = ctx.op("Not", {ctx.op(is_right ? "Greater" : "GreaterOrEqual", {element_at(middle), values})});
    Value* start = ctx.where(ctx.op("And", {is_open, is_behind}),
                             ctx.op("Add", {middle, ctx.constant(1, DType::kInt64)}), bounds[0]);
    return {{start, ctx.where(is_behind, bounds[1], middle)}};
  };

  const std::vector<Size> sizes = ctx.sizes_of(values);
  Value* count = as_scalar(ctx, size_of(ctx, list, last));
  const std::vector<Value*> bounds = {ctx.filled(sizes, ctx.constant(0, DType::kInt64)), ctx.filled(sizes, count)};
  return repeated(ctx, halvings(ctx, count), bounds, halve).front();
}

Value* places(LoweringContext& ctx, Value* list, Value* values, bool is_right) {
  const auto found = is_in_order(ctx, list) ? counted_places : searched_places;
  return found(ctx, list, values, is_right);
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
