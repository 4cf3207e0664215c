#include <vector>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/complex_rules.h"
#include "lowering/iteration.h"
#include "lowering/size_arithmetic.h"

/// Products of complex numbers along an axis, one element after the other, on the two parts:
/// `ComplexSite::leave_to_row` says how they come and go.
namespace exportguard::lowering {
namespace {

/// The real and the imaginary part.
using Pair = std::vector<Value*>;

/// Argument 0 in the dtype of the result's parts; what is real has an imaginary part of zeros.
Pair factors(LoweringContext& ctx) {
  Pair parts = ctx.is_value(0) ? Pair{ctx.input(0)} : ctx.inputs(0);
  for (Value*& part : parts) part = ctx.cast(part, ctx.output_dtype());
  if (parts.size() == 1) parts.push_back(ctx.filled(ctx.sizes_of(parts[0]), ctx.number_like(0, parts[0])));
  return parts;
}

Pair multiplied(LoweringContext& ctx, const Pair& a, const Pair& b) {
  const auto product = [&](std::size_t i, std::size_t j) { return ctx.op("Mul", {a[i], b[j]}); };
  return {ctx.op("Sub", {product(0, 0), product(1, 1)}), ctx.op("Add", {product(0, 1), product(1, 0)})};
}

/// The permutation that puts `axis` first.
std::vector<std::int64_t> to_front(std::size_t rank, std::int64_t axis) {
  std::vector<std::int64_t> order = other_axes(rank, axis);
  order.insert(order.begin(), axis);
  return order;
}

/// The product of all slices along the first axis, and behind it, if `each` is asked for, those of the first ones.
std::vector<Value*> products(LoweringContext& ctx, const Pair& x, bool each) {
  std::vector<Size> sizes = ctx.sizes_of(x[0]);
  sizes.erase(sizes.begin());
  ir::Type slice = x[0]->type();
  slice.shape->erase(slice.shape->begin());
  const auto typed = [&](Value* value) {
    value->set_type(slice);
    return value;
  };
  const Pair one = {typed(ctx.filled(sizes, ctx.number_like(1, x[0]))),
                    typed(ctx.filled(sizes, ctx.number_like(0, x[0])))};
  const auto step = [&](Value* k, const std::vector<Value*>& state) {
    const Pair next = multiplied(ctx, state, {ctx.gather(x[0], k, 0), ctx.gather(x[1], k, 0)});
    const Pair state_after = {typed(next[0]), typed(next[1])};
    return Step{state_after, nullptr, each ? state_after : Pair{}};
  };
  return repeated(ctx, ctx.dim_scalar(x[0], 0), one, step, each ? 2 : 0);
}

void lower_product(LoweringContext& ctx) {
  Pair x = factors(ctx);
  for (Value*& part : x) part = ctx.reshape(part, {-1});
  const std::vector<Value*> whole = products(ctx, x, false);
  ctx.results({whole[0], whole[1]});
}

void lower_product_along(LoweringContext& ctx) {
  Pair x = factors(ctx);
  const std::size_t rank = ctx.rank(x[0]);
  if (rank == 0) return ctx.results(x);
  const std::int64_t axis = ctx.axis(1, rank);
  for (Value*& part : x) part = ctx.transpose(part, to_front(rank, axis));
  Pair whole = products(ctx, x, false);
  const bool keepdim = ctx.has(2) && ctx.flag(2);
  for (Value*& part : whole) part = keepdim ? ctx.unsqueeze(part, {axis}) : part;
  ctx.results(whole);
}

/// With a slice of zeros at the end, which nobody reads: what a Loop collects in no turn has sizes of its own.
Value* never_empty(LoweringContext& ctx, Value* x) {
  if (ctx.size(x, 0).constant().value_or(0) > 0) return x;
  std::vector<Size> sizes = ctx.sizes_of(x);
  sizes[0] = 1;
  return ctx.concat({x, ctx.filled(sizes, ctx.number_like(0, x))}, 0);
}

void lower_running_product(LoweringContext& ctx) {
  Pair x = factors(ctx);
  const std::size_t rank = ctx.rank(x[0]);
  if (rank == 0) return ctx.results(x);
  const std::vector<std::int64_t> order = to_front(rank, ctx.axis(1, rank));
  for (Value*& part : x) part = ctx.transpose(part, order);
  const Size count = size_of(ctx, x[0], 0);
  std::vector<Value*> made = products(ctx, {never_empty(ctx, x[0]), never_empty(ctx, x[1])}, true);
  const auto whole = [&](Value* part) { return ctx.transpose(ctx.slice(part, 0, 0, count), inverse(order)); };
  ctx.results({whole(made[2]), whole(made[3])});
}

}  // namespace

void populate_complex_products(LoweringTable& table) {
  table.add("complex.prod.default", lower_product);
  table.add("complex.prod.dim_int", lower_product_along);
  table.add("complex.cumprod.default", lower_running_product);
  table.add_complex({"aten.prod.default", "aten.prod.dim_int", "aten.cumprod.default"}, separate_in_row);
}

}  // namespace exportguard::lowering
