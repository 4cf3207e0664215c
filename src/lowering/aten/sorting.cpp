#include <limits>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/checks.h"
#include "lowering/kernels.h"
#include "lowering/ranking.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

void lower_topk(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const Ranked found = ranked(ctx, x, ctx.sizes(1).front(), {ctx.axis(2, ctx.rank(x)), ctx.flag(3)});
  ctx.results({found.values, found.positions});
}

/// From the arguments dim and descending, which begin at position `first`.
Ranked sorted(LoweringContext& ctx, std::size_t first) {
  Value* x = ctx.input(0);
  return fully_ranked(ctx, x, {ctx.axis(first, ctx.rank(x)), ctx.flag(first + 1)});
}

void lower_sort(LoweringContext& ctx) {
  const Ranked found = sorted(ctx, 1);
  ctx.results({found.values, found.positions});
}

void lower_sort_stable(LoweringContext& ctx) {
  const Ranked found = sorted(ctx, 2);
  ctx.results({found.values, found.positions});
}

void lower_argsort(LoweringContext& ctx) { ctx.result(sorted(ctx, 1).positions); }

void lower_argsort_stable(LoweringContext& ctx) { ctx.result(sorted(ctx, 2).positions); }

void lower_msort(LoweringContext& ctx) { ctx.result(fully_ranked(ctx, ctx.input(0), {0, false}).values); }

void lower_kthvalue(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const std::int64_t axis = ctx.axis(2, ctx.rank(x));
  const Ranked found = ranked(ctx, x, ctx.sizes(1).front(), {axis, false});
  if (ctx.rank(x) == 0) return ctx.results({found.values, found.positions});
  Value* last = ctx.flag(3) ? ctx.ints({-1}) : ctx.constant(-1, DType::kInt64);
  ctx.results({ctx.gather(found.values, last, axis), ctx.gather(found.positions, last, axis)});
}

// ------------------------------------------------------------------------------------------------ distinct elements

/// Results of which torch makes as many as were asked for; it leaves the others empty and nobody reads them.
void finish_distinct(LoweringContext& ctx, Value* values, Value* inverse, Value* counts) {
  std::vector<Value*> results = {values, inverse, counts};
  results.resize(ctx.node().output_count());
  for (std::size_t i = 1; i < results.size(); ++i) {
    const auto rank = ctx.output_type(i).rank();
    const bool is_left_empty = rank == 1 && ctx.output_type(i).shape->front().constant() == 0;
    if (is_left_empty) results[i] = ctx.filled({Size(0)}, ctx.constant(0, DType::kInt64));
  }
  ctx.results(results);
}

std::vector<Value*> unique(LoweringContext& ctx, Value* x, ir::AttributeList attributes) {
  const DType carrier = kernel_dtype(ctx, "Unique", x->dtype());
  return ctx.op_many("Unique", {ctx.cast(x, carrier)}, 4, std::move(attributes));
}

/// The distinct elements, for each element the place of its own, and how often each is there.
struct Distinct {
  Value* values;
  Value* inverse;
  Value* counts;
};

Distinct distinct_elements(LoweringContext& ctx, Value* flat) {
  const std::vector<Value*> found = unique(ctx, flat, {{"sorted", 1}});
  found[2]->set_type(ir::Type::tensor(DType::kInt64, std::nullopt));
  return {found[0], found[2], found[3]};
}

Value* numbered(LoweringContext& ctx, Value* flags) {
  Value* so_far = ctx.op("CumSum", {ctx.cast(flags, DType::kInt64), ctx.constant(0, DType::kInt64)});
  return ctx.op("Sub", {so_far, ctx.constant(1, DType::kInt64)});
}

/// No NaN equals another: each is an element of its own, behind all numbers. ONNX leaves them open.
Distinct distinct_numbers(LoweringContext& ctx, Value* flat) {
  Value* is_nan = kernel_op(ctx, "IsNaN", {flat});
  Value* is_number = ctx.op("Not", {is_nan});
  const auto chosen = [&](Value* flags) { return ctx.op("Compress", {flat, flags}, {{"axis", 0}}); };
  const Distinct numbers = distinct_elements(ctx, chosen(is_number));
  Value* nans = chosen(is_nan);

  Value* ones = ctx.op("Expand", {ctx.ints({1}), ctx.op("Shape", {nans})});
  Value* place_of_nan = ctx.op("Add", {numbered(ctx, is_nan), ctx.op("Shape", {numbers.values})});
  Value* number_before = ctx.op("Max", {numbered(ctx, is_number), ctx.constant(0, DType::kInt64)});
  Value* at_least_one = ctx.concat({numbers.inverse, ctx.ints({0})}, 0);  // where every element is NaN
  Value* inverse = ctx.where(is_nan, place_of_nan, ctx.gather(at_least_one, number_before, 0));
  return {ctx.concat({numbers.values, ctx.cast(nans, numbers.values->dtype())}, 0), inverse,
          ctx.concat({numbers.counts, ones}, 0)};
}

void lower_unique(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const Distinct found =
      is_floating(x->dtype()) ? distinct_numbers(ctx, ctx.reshape(x, {Size(-1)})) : distinct_elements(ctx, x);
  finish_distinct(ctx, found.values, ctx.reshape(found.inverse, ctx.sizes_of(x)), found.counts);
}

/// A matrix with a row for each slice, and behind it what tells apart those that have a NaN: each differs from every
/// other. NaN stands where infinity does; torch's sort has no place for it.
Value* rows_with_nan_apart(LoweringContext& ctx, Value* x, std::int64_t axis) {
  const Size count = size_of(ctx, x, axis);
  std::vector<std::int64_t> order = other_axes(ctx.rank(x), axis);
  order.insert(order.begin(), axis);
  Value* rows = ctx.reshape(ctx.cast(ctx.transpose(x, order), kernel_dtype(ctx, "Unique", x->dtype())), {count, -1});

  Value* is_nan = ctx.op("IsNaN", {rows});
  Value* has_nan = ctx.reduce("ReduceSum", ctx.cast(is_nan, DType::kInt64), {1}, true);
  Value* numbers = ctx.cast(ctx.unsqueeze(range(ctx, count), {1}), rows->dtype());
  Value* own = ctx.where(ctx.cast(has_nan, DType::kBool), numbers, ctx.number_like(-1, rows));
  Value* infinity = ctx.number_like(std::numeric_limits<double>::infinity(), rows);
  return ctx.concat({ctx.where(is_nan, infinity, rows), own}, 1);
}

/// Argument 0, in a file that stops where its slices along an axis have no element, as torch does.
Value* with_slices(LoweringContext& ctx, std::int64_t axis) {
  Value* x = ctx.input(0);
  const std::string reason = "slices of no element, of which torch tells none from another";
  return whole_if(ctx, find_entries(ctx, x, other_axes(ctx.rank(x), axis), reason), x);
}

void lower_unique_dim(LoweringContext& ctx) {
  const std::int64_t axis = ctx.axis(1, ctx.rank(ctx.input(0)));
  Value* x = with_slices(ctx, axis);
  if (!is_floating(x->dtype())) {
    const std::vector<Value*> found = unique(ctx, x, {{"axis", axis}, {"sorted", 1}});
    return finish_distinct(ctx, found[0], found[2], found[3]);
  }
  const std::vector<Value*> found = unique(ctx, rows_with_nan_apart(ctx, x, axis), {{"axis", 0}, {"sorted", 1}});
  finish_distinct(ctx, ctx.gather(x, found[1], axis), found[2], found[3]);
}

/// For each slice along the axis whether it differs from the one before it; the first always does.
Value* starts_of_runs(LoweringContext& ctx, Value* x, std::int64_t axis) {
  Value* comparable = ctx.cast(x, kernel_dtype(ctx, "Equal", x->dtype()));
  Value* differs =
      ctx.op("Not", {ctx.op("Equal", {ctx.slice(comparable, axis, 1, kEnd), ctx.slice(comparable, axis, 0, -1)})});
  const std::vector<std::int64_t> others = other_axes(ctx.rank(x), axis);
  Value* counts = ctx.cast(differs, DType::kInt32);
  if (!others.empty()) counts = ctx.reduce("ReduceMax", counts, others, false);
  // An empty axis has no first slice: the one that is put in front is cut off again.
  Value* starts = ctx.concat(
      {ctx.constant(ir::Tensor::filled(1, DType::kBool, std::vector<std::int64_t>{1})), ctx.cast(counts, DType::kBool)},
      0);
  return ctx.slice(starts, 0, 0, size_of(ctx, x, axis));
}

void distinct_runs(LoweringContext& ctx, Value* x, std::int64_t axis, const std::vector<Size>& inverse_sizes) {
  Value* starts = starts_of_runs(ctx, x, axis);
  Value* values = ctx.op("Compress", {x, starts}, {{"axis", axis}});
  Value* run_counts = ctx.op("CumSum", {ctx.cast(starts, DType::kInt64), ctx.constant(0, DType::kInt64)});
  Value* inverse = ctx.op("Sub", {run_counts, ctx.constant(1, DType::kInt64)});
  const Size length = size_of(ctx, x, axis);
  Value* begins = ctx.op("Compress", {range(ctx, length), starts}, {{"axis", 0}});
  Value* ends = ctx.concat({ctx.slice(begins, 0, 1, kEnd), as_dim(ctx, length)}, 0);
  ends = ctx.op("Slice", {ends, ctx.ints({0}), ctx.op("Shape", {begins})});  // nothing at all for an empty axis
  finish_distinct(ctx, values, ctx.reshape(inverse, inverse_sizes), ctx.op("Sub", {ends, begins}));
}

void lower_unique_consecutive(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  if (ctx.has(3)) {
    const std::int64_t axis = ctx.axis(3, ctx.rank(x));
    return distinct_runs(ctx, with_slices(ctx, axis), axis, {size_of(ctx, x, axis)});
  }
  distinct_runs(ctx, ctx.reshape(x, {Size(-1)}), 0, ctx.sizes_of(x));
}

void lower_unique_dim_consecutive(LoweringContext& ctx) {
  const std::int64_t axis = ctx.axis(1, ctx.rank(ctx.input(0)));
  Value* x = with_slices(ctx, axis);
  distinct_runs(ctx, x, axis, {size_of(ctx, x, axis)});
}

}  // namespace

void populate_sorting(LoweringTable& table) {
  table.add("aten.topk.default", lower_topk);
  table.add("aten.sort.default", lower_sort);
  table.add("aten.sort.stable", lower_sort_stable);
  table.add("aten.argsort.default", lower_argsort);
  table.add("aten.argsort.stable", lower_argsort_stable);
  table.add("aten.msort.default", lower_msort);
  table.add("aten.kthvalue.default", lower_kthvalue);
  table.add({"aten._unique2.default", "aten._unique.default"}, lower_unique);
  table.add("aten.unique_dim.default", lower_unique_dim);
  table.add("aten.unique_consecutive.default", lower_unique_consecutive);
  table.add("aten.unique_dim_consecutive.default", lower_unique_dim_consecutive);
}

}  // namespace exportguard::lowering
