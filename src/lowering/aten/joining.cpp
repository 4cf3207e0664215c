#include <algorithm>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/complex_rules.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

/// The tensors of a list argument in torch's common dtype.
std::vector<Value*> operands(LoweringContext& ctx) {
  std::vector<Value*> values = ctx.inputs(0);
  for (Value*& value : values) value = ctx.cast(value, ctx.output_dtype());
  return values;
}

/// An empty vector joins with tensors of any shape; torch keeps that for old programs.
bool is_legacy_empty(const LoweringContext& ctx, const Value* value) {
  return ctx.rank(value) == 1 && ctx.size(value, 0).constant() == 0;
}

void lower_cat(LoweringContext& ctx) {
  std::vector<Value*> values = operands(ctx);
  const std::size_t rank = ctx.output_type().rank().value_or(1);
  Value* first = values.front();
  std::erase_if(values, [&](const Value* value) { return is_legacy_empty(ctx, value); });
  ctx.result(values.empty() ? first : ctx.concat(values, ctx.axis(1, rank)));
}

void lower_stack(LoweringContext& ctx) {
  std::vector<Value*> values = operands(ctx);
  const std::int64_t axis = ctx.axis(1, ctx.rank(values.front()) + 1);
  for (Value*& value : values) value = ctx.unsqueeze(value, {axis});
  ctx.result(ctx.concat(values, axis));
}

// ------------------------------------------------------------------------------------------------ stacks of NumPy

/// At least that rank, as torch's atleast_1d to atleast_3d add axes.
Value* with_rank_at_least(LoweringContext& ctx, Value* value, std::size_t rank) {
  const std::size_t has = ctx.rank(value);
  if (has >= rank) return value;
  if (rank == 3 && has == 2) return ctx.unsqueeze(value, {2});
  if (rank == 3 && has == 1) return ctx.unsqueeze(value, {0, 2});
  if (rank == 3) return ctx.unsqueeze(value, {0, 1, 2});
  if (rank == 2 && has == 0) return ctx.unsqueeze(value, {0, 1});
  return ctx.unsqueeze(value, {0});
}

std::vector<Value*> operands_of_rank(LoweringContext& ctx, std::size_t rank) {
  std::vector<Value*> values = operands(ctx);
  for (Value*& value : values) value = with_rank_at_least(ctx, value, rank);
  return values;
}

void lower_hstack(LoweringContext& ctx) {
  const std::vector<Value*> values = operands_of_rank(ctx, 1);
  ctx.result(ctx.concat(values, ctx.rank(values.front()) == 1 ? 0 : 1));
}

void lower_vstack(LoweringContext& ctx) { ctx.result(ctx.concat(operands_of_rank(ctx, 2), 0)); }

void lower_dstack(LoweringContext& ctx) { ctx.result(ctx.concat(operands_of_rank(ctx, 3), 2)); }

void lower_column_stack(LoweringContext& ctx) {
  std::vector<Value*> values = operands(ctx);
  for (Value*& value : values) {
    if (ctx.rank(value) == 0) value = ctx.unsqueeze(value, {0, 1});
    if (ctx.rank(value) == 1) value = ctx.unsqueeze(value, {1});
  }
  ctx.result(ctx.concat(values, 1));
}

// ------------------------------------------------------------------------------------------------ blocks

void lower_block_diag(LoweringContext& ctx) {
  const std::vector<Value*> blocks = operands_of_rank(ctx, 2);
  const Size width = ctx.output_sizes().at(1);
  Value* zero = ctx.constant(0, ctx.output_dtype());
  Size before = 0;
  std::vector<Value*> rows;
  for (Value* block : blocks) {
    const Size height = size_of(ctx, block, 0);
    const Size after = add(ctx, before, size_of(ctx, block, 1));
    Value* left = ctx.filled({height, before}, zero);
    Value* right = ctx.filled({height, subtract(ctx, width, after)}, zero);
    rows.push_back(ctx.concat({left, block, right}, 1));
    before = after;
  }
  ctx.result(ctx.concat(rows, 0));
}

/// Every tensor cut into that many chunks along an axis, the last filled up with zeros; what is behind the axis is
/// flattened, and the chunks are joined there.
void lower_chunk_cat(LoweringContext& ctx) {
  const std::vector<Value*> values = operands(ctx);
  const auto at = static_cast<std::size_t>(ctx.axis(1, ctx.rank(values.front())));
  const std::int64_t count = ctx.integer(2);
  std::vector<Value*> parts;
  for (Value* value : values) {
    const auto length = ctx.size(value, static_cast<std::int64_t>(at)).constant();
    ctx.require(length.has_value(), "the axis that is cut into chunks must have a constant size");
    std::vector<Size> missing = ctx.sizes_of(value);
    missing[at] = Size((count - *length % count) % count);
    Value* zeros = ctx.filled(missing, ctx.constant(0, value->dtype()));
    Value* full = missing[at].number() == 0 ? value : ctx.concat({value, zeros}, static_cast<std::int64_t>(at));
    std::vector<Size> sizes = ctx.sizes_of(value);
    sizes.resize(at, Size(0));
    sizes.insert(sizes.end(), {Size(count), Size(-1)});
    parts.push_back(ctx.reshape(full, sizes));
  }
  ctx.result(ctx.concat(parts, static_cast<std::int64_t>(at) + 1));
}

// ------------------------------------------------------------------------------------------------ grids

/// Tensor `i` of `count` vectors laid along its own axis of a grid.
Value* along_axis(LoweringContext& ctx, Value* value, std::size_t axis, std::size_t count) {
  Value* vector = ctx.rank(value) == 0 ? ctx.unsqueeze(value, {0}) : value;
  return ctx.unsqueeze(vector, other_axes(count, static_cast<std::int64_t>(axis)));
}

void lower_meshgrid(LoweringContext& ctx) {
  const std::vector<Value*> values = ctx.inputs(0);
  const bool is_swapped = ctx.argument_count() > 1 && ctx.has(1) && ctx.text(1) == "xy" && values.size() > 1;
  std::vector<Value*> results;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t axis = is_swapped && i < 2 ? 1 - i : i;
    results.push_back(ctx.expand(along_axis(ctx, values[i], axis, values.size()), ctx.output_sizes(i)));
  }
  ctx.results(results);
}

void lower_cartesian_prod(LoweringContext& ctx) {
  const std::vector<Value*> values = operands(ctx);
  if (values.size() == 1) return ctx.result(values.front());
  std::vector<Size> grid;
  for (Value* value : values) grid.push_back(size_of(ctx, value, 0));
  std::vector<Value*> columns;
  for (std::size_t i = 0; i < values.size(); ++i) {
    Value* spread = ctx.expand(along_axis(ctx, values[i], i, values.size()), grid);
    columns.push_back(ctx.unsqueeze(ctx.reshape(spread, {Size(-1)}), {1}));
  }
  ctx.result(ctx.concat(columns, 1));
}

/// The next selection of `chosen.size()` positions out of `count`, in order; false after the last.
bool advance(std::vector<std::int64_t>& chosen, std::int64_t count, bool repeats) {
  const auto length = static_cast<std::int64_t>(chosen.size());
  for (std::int64_t i = length - 1; i >= 0; --i) {
    const std::int64_t last = repeats ? count - 1 : count - length + i;
    if (chosen[static_cast<std::size_t>(i)] >= last) continue;
    std::int64_t next = ++chosen[static_cast<std::size_t>(i)];
    for (std::int64_t j = i + 1; j < length; ++j) chosen[static_cast<std::size_t>(j)] = repeats ? next : ++next;
    return true;
  }
  return false;
}

/// Of any number of elements: the places of the upper triangle of a square.
Value* pairs(LoweringContext& ctx, Value* x, bool repeats) {
  Value* numbers = range(ctx, size_of(ctx, x, 0));
  Value* is_pair = ctx.op(repeats ? "LessOrEqual" : "Less", {ctx.unsqueeze(numbers, {1}), numbers});
  return ctx.gather(x, ctx.transpose(ctx.op("NonZero", {is_pair}), {1, 0}), 0);
}

void lower_combinations(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const auto count = ctx.size(x, 0).constant();
  const std::int64_t length = ctx.integer(1);
  const bool repeats = ctx.flag(2);
  if (!count && length == 1) return ctx.result(ctx.unsqueeze(x, {1}));
  if (!count && length == 2) return ctx.result(pairs(ctx, x, repeats));
  ctx.require(count.has_value(), "combinations of three or more need a vector of a constant size");
  std::vector<std::int64_t> chosen(static_cast<std::size_t>(length));
  for (std::int64_t i = 0; i < length && !repeats; ++i) chosen[static_cast<std::size_t>(i)] = i;
  std::vector<std::int64_t> all;
  const bool has_any = length > 0 && (repeats ? *count > 0 : *count >= length);
  for (bool more = has_any; more; more = advance(chosen, *count, repeats))
    all.insert(all.end(), chosen.begin(), chosen.end());
  ctx.result(ctx.reshape_like_output(ctx.gather(x, ctx.ints(all), 0)));
}

}  // namespace

void populate_joining(LoweringTable& table) {
  table.add({"aten.cat.default", "aten.concat.default", "aten.concatenate.default"}, lower_cat);
  table.add("aten.stack.default", lower_stack);
  table.add("aten.hstack.default", lower_hstack);
  table.add({"aten.vstack.default", "aten.row_stack.default"}, lower_vstack);
  table.add("aten.dstack.default", lower_dstack);
  table.add("aten.column_stack.default", lower_column_stack);
  table.add("aten.block_diag.default", lower_block_diag);
  table.add("aten._chunk_cat.default", lower_chunk_cat);
  table.add({"aten.meshgrid.default", "aten.meshgrid.indexing"}, lower_meshgrid);
  table.add("aten.cartesian_prod.default", lower_cartesian_prod);
  table.add("aten.combinations.default", lower_combinations);
  table.add_complex({"aten.cat.default", "aten.stack.default"}, separate_sum);
}

}  // namespace exportguard::lowering
