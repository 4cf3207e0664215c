#include <limits>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/checks.h"
#include "lowering/complex_rules.h"
#include "lowering/dtype_limits.h"
#include "lowering/kernels.h"
#include "lowering/moments.h"
#include "lowering/scatter.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

void lower_embedding(LoweringContext& ctx) { ctx.result(ctx.gather(ctx.input(0), ctx.input(1), 0)); }

// ------------------------------------------------------------------------------------------------ bags

enum class Mode { kSum = 0, kMean = 1, kMax = 2 };

struct Bags {
  Value* rows;        ///< [n, size]: the rows looked up
  Value* ids;         ///< int64[n]: the bag of each row
  Value* is_counted;  ///< bool[n]; null: all of them
  Size count;
  Value* is_summed = nullptr;  ///< bool[n]: not behind a last offset; torch leaves out the others in sums alone
};

/// Bag i begins at offset i: a row is in the last bag that begins at or before it.
Value* bag_ids(LoweringContext& ctx, Value* offsets, Value* indices) {
  Value* positions = ctx.unsqueeze(range(ctx, size_of(ctx, indices, 0)), {1});
  Value* has_begun = ctx.op("GreaterOrEqual", {positions, offsets});
  Value* begun = ctx.reduce("ReduceSum", ctx.cast(has_begun, DType::kInt64), {1}, false);
  return ctx.op("Sub", {begun, ctx.constant(1, DType::kInt64)});
}

/// Whether torch takes the rows from one offset to the next: bags share rows where offsets fall. Otherwise it counts
/// the offsets up to a row, as `bag_ids` does; but means are divided by what lies between two offsets all the same.
bool takes_runs(LoweringContext& ctx) {
  const bool has_padding = ctx.has(8) && ctx.integer(8) >= 0;
  const auto mode = static_cast<Mode>(ctx.integer(4));
  const bool adds_runs = !has_padding && ctx.input(0)->dtype() != DType::kFloat64;
  return mode == Mode::kMean || (mode == Mode::kSum && adds_runs);
}

/// Offsets that begin at 0 and stay within the rows, and do not fall where bags would share rows.
Value* checked_offsets(LoweringContext& ctx, Value* indices) {
  Value* offsets = ctx.cast(ctx.input(2), DType::kInt64);
  const bool is_counted = offsets->producer() != nullptr && offsets->producer()->op() == "Range";
  if (is_counted) return offsets;
  Value* count = ctx.dim_of(indices, 0);
  Value* begins = none_below(ctx, ctx.op("Neg", {ctx.slice(offsets, 0, 0, 1)}), 0);
  Value* fits = takes_runs(ctx)
                    ? never_falls(ctx, ctx.concat({ctx.ints({0}), offsets, count}, 0))
                    : ctx.op("And", {none_below(ctx, offsets, 0), none_below(ctx, ctx.op("Sub", {count, offsets}), 0)});
  return stops_unless(ctx, ctx.op("And", {begins, fits}), offsets);
}

/// `padding`: int64 of rank 0, the index of rows that do not count; null: all do.
Bags bags_of(LoweringContext& ctx, Value* padding) {
  Value* indices = ctx.input(1);
  Value* offsets = checked_offsets(ctx, indices);
  const bool includes_last = ctx.flag(7);
  Value* end = includes_last ? ctx.slice(offsets, 0, -1, kEnd) : nullptr;
  if (includes_last) offsets = ctx.slice(offsets, 0, 0, -1);
  const Size offset_count = size_of(ctx, ctx.input(2), 0);
  Bags bags{ctx.gather(ctx.input(0), indices, 0), bag_ids(ctx, offsets, indices), nullptr,
            includes_last ? subtract(ctx, offset_count, 1) : offset_count};
  if (includes_last) bags.is_summed = ctx.op("Less", {range(ctx, size_of(ctx, indices, 0)), end});
  if (padding) bags.is_counted = ctx.op("Not", {ctx.op("Equal", {indices, ctx.cast(padding, indices->dtype())})});
  return bags;
}

/// A tensor with a row for each bag, each element the reduction of what `updates` has for that bag.
Value* reduced_bags(LoweringContext& ctx, const Bags& bags, Value* updates, Value* initial, Reduction reduction) {
  std::vector<Size> sizes = ctx.sizes_of(updates);
  sizes.front() = bags.count;
  return scatter_slices(ctx, ctx.filled(sizes, initial), 0, bags.ids, updates, reduction);
}

Value* counts(LoweringContext& ctx, const Bags& bags, DType dtype) {
  Value* one = ctx.constant(1, dtype);
  Value* ones = bags.is_counted ? ctx.cast(bags.is_counted, dtype) : ctx.expand(one, {size_of(ctx, bags.ids, 0)});
  return ctx.unsqueeze(reduced_bags(ctx, bags, ones, ctx.constant(0, dtype), Reduction::kAdd), {1});
}

Value* summed_bags(LoweringContext& ctx, const Bags& bags, Value* weights) {
  Value* rows = bags.rows;
  if (weights) rows = ctx.op("Mul", {rows, ctx.unsqueeze(ctx.cast(weights, rows->dtype()), {1})});
  Value* zero = ctx.number_like(0, rows);
  if (bags.is_counted) rows = ctx.where(ctx.unsqueeze(bags.is_counted, {1}), rows, zero);
  if (bags.is_summed) rows = ctx.where(ctx.unsqueeze(bags.is_summed, {1}), rows, zero);
  return reduced_bags(ctx, bags, rows, zero, Reduction::kAdd);
}

/// An empty bag gives zeros.
Value* mean_bags(LoweringContext& ctx, const Bags& bags) {
  Value* count = counts(ctx, bags, bags.rows->dtype());
  return ctx.op("Div", {summed_bags(ctx, bags, nullptr), ctx.op("Max", {count, ctx.number_like(1, count)})});
}

/// bool[bags, size]: where the first row of a bag has NaN.
Value* begins_with_nan(LoweringContext& ctx, const Bags& bags, Value* is_nan) {
  const Size count = size_of(ctx, bags.ids, 0);
  Value* behind = as_scalar(ctx, count);
  Value* places = range(ctx, count);
  if (bags.is_counted) places = ctx.where(bags.is_counted, places, behind);
  Value* first = reduced_bags(ctx, bags, places, behind, Reduction::kMinimum);
  Value* none = ctx.filled({Size(1), size_of(ctx, is_nan, 1)}, ctx.constant(0, DType::kInt32));  // of an empty bag
  return ctx.cast(ctx.gather(ctx.concat({ctx.cast(is_nan, DType::kInt32), none}, 0), first, 0), DType::kBool);
}

/// torch keeps the first row until another one is greater: a NaN in it stays, and one in another row is never greater.
Value* largest_of_bags(LoweringContext& ctx, const Bags& bags) {
  Value* low = lowest(ctx, bags.rows->dtype());
  Value* is_nan = kernel_op(ctx, "IsNaN", {bags.rows});
  Value* rows = ctx.where(is_nan, low, bags.rows);
  if (bags.is_counted) rows = ctx.where(ctx.unsqueeze(bags.is_counted, {1}), rows, low);
  Value* largest = reduced_bags(ctx, bags, rows, low, Reduction::kMaximum);
  Value* nan = ctx.number_like(std::numeric_limits<double>::quiet_NaN(), largest);
  largest = ctx.where(begins_with_nan(ctx, bags, is_nan), nan, largest);
  Value* count = counts(ctx, bags, DType::kInt64);
  Value* has_rows = ctx.op("Greater", {count, ctx.constant(0, DType::kInt64)});
  return ctx.where(has_rows, largest, ctx.number_like(0, largest));
}

Value* reduce_bags(LoweringContext& ctx, const Bags& bags, Mode mode) {
  if (mode == Mode::kMean) return mean_bags(ctx, bags);
  return mode == Mode::kMax ? largest_of_bags(ctx, bags) : summed_bags(ctx, bags, ctx.find_input(6));
}

/// The outputs behind the first serve the backward pass.
void give_bags(LoweringContext& ctx, Value* padding) {
  std::vector<Value*> outputs(ctx.node().output_count(), nullptr);
  outputs.front() = reduce_bags(ctx, bags_of(ctx, padding), static_cast<Mode>(ctx.integer(4)));
  ctx.results(outputs);
}

/// A negative `padding_idx` is none.
void lower_embedding_bag(LoweringContext& ctx) {
  const std::int64_t padding = ctx.has(8) ? ctx.integer(8) : -1;
  give_bags(ctx, padding >= 0 ? ctx.constant(padding, DType::kInt64) : nullptr);
}

/// Here alone a negative `padding_idx` counts from the end of the table, and None is none.
void lower_embedding_bag_padding_idx(LoweringContext& ctx) {
  if (!ctx.has(8)) return give_bags(ctx, nullptr);
  const std::int64_t padding = ctx.integer(8);
  Value* index = ctx.constant(padding, DType::kInt64);
  give_bags(ctx, padding < 0 ? ctx.op("Add", {index, ctx.dim_scalar(ctx.input(0), 0)}) : index);
}

// ------------------------------------------------------------------------------------------------ max_norm

/// The rows that are looked up are scaled down to the bound, where their norm is above it.
void lower_embedding_renorm(LoweringContext& ctx) {
  Value* weight = ctx.input(0);
  Value* indices = ctx.reshape(ctx.input(1), {-1});
  Value* rows = ctx.gather(weight, indices, 0);
  Value* norm = p_norm(ctx, rows, ctx.number(3), {1});
  Value* bound = ctx.number_like(ctx.number(2), norm);
  Value* factor = ctx.op("Div", {bound, ctx.op("Add", {norm, ctx.number_like(1e-7, norm)})});
  Value* scaled = ctx.where(ctx.op("Greater", {norm, bound}), ctx.op("Mul", {rows, factor}), rows);
  ctx.result(scatter_slices(ctx, weight, 0, indices, scaled, Reduction::kNone));
}

}  // namespace

void populate_embedding(LoweringTable& table) {
  table.add("aten.embedding.default", lower_embedding);
  table.add({"aten.embedding_bag.default", "aten._embedding_bag.default", "aten._embedding_bag_forward_only.default"},
            lower_embedding_bag);
  table.add("aten.embedding_bag.padding_idx", lower_embedding_bag_padding_idx);
  table.add("aten.embedding_renorm.default", lower_embedding_renorm);
  table.add_complex({"aten.embedding.default"}, separate_each);
}

}  // namespace exportguard::lowering
