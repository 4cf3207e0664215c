#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/complex_rules.h"
#include "lowering/scatter.h"
#include "lowering/size_arithmetic.h"
#include "lowering/vectors.h"

namespace exportguard::lowering {
namespace {

void lower_index_select(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  Value* selected = ctx.gather(as_vector(ctx, x), as_vector(ctx, ctx.input(2)), ctx.axis(1, ctx.rank(x)));
  ctx.result(ctx.rank(x) == 0 ? ctx.squeeze(selected, {0}) : selected);
}

/// GatherElements for tensors of rank 0 too: they count as vectors. An empty index may be of any dtype and rank.
Value* gathered(LoweringContext& ctx, Value* x, Value* index, std::int64_t axis) {
  if (index->dtype() != DType::kInt32) index = ctx.cast(index, DType::kInt64);
  Value* vector = as_vector(ctx, index);
  x = as_vector(ctx, x);
  if (ctx.rank(vector) != ctx.rank(x)) return ctx.cast(index, x->dtype());
  Value* found = ctx.op("GatherElements", {x, vector}, {{"axis", axis}});
  return vector == index ? found : ctx.squeeze(found, {0});
}

void lower_gather(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  ctx.result(gathered(ctx, x, ctx.input(2), ctx.axis(1, ctx.rank(x))));
}

void lower_take(LoweringContext& ctx) { ctx.result(ctx.gather(flattened(ctx, ctx.input(0)), ctx.input(1), 0)); }

void lower_take_along_dim(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  Value* index = ctx.input(1);
  if (!ctx.has(2)) return ctx.result(gathered(ctx, flattened(ctx, x), flattened(ctx, index), 0));
  const std::int64_t axis = ctx.axis(2, ctx.rank(x));
  const std::vector<Size> sizes = ctx.output_sizes(0);  // what both broadcast to, but for the axis of x
  std::vector<Size> of_x = sizes;
  of_x[static_cast<std::size_t>(axis)] = ctx.sizes_of(x)[static_cast<std::size_t>(axis)];
  index = ctx.op("Mod", {index, ctx.dim_scalar(x, axis)});  // along an axis torch counts indices around it
  ctx.result(gathered(ctx, ctx.expand(x, of_x), ctx.expand(index, sizes), axis));
}

void lower_put(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const Reduction reduction = ctx.flag(3) ? Reduction::kAdd : Reduction::kNone;
  Value* written = scatter_elements(ctx, flattened(ctx, x), 0, flattened(ctx, ctx.input(1)),
                                    flattened(ctx, ctx.input(2)), reduction);
  ctx.result(ctx.rank(x) == 1 ? written : ctx.reshape(written, ctx.sizes_of(x)));
}

}  // namespace

void populate_gathering(LoweringTable& table) {
  table.add("aten.index_select.default", lower_index_select);
  table.add("aten.gather.default", lower_gather);
  table.add("aten.take.default", lower_take);
  table.add("aten.take_along_dim.default", lower_take_along_dim);
  table.add("aten.put.default", lower_put);
  table.add_complex({"aten.index_select.default", "aten.gather.default"}, separate_each);
}

}  // namespace exportguard::lowering
