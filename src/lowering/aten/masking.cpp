#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/complex_rules.h"
#include "lowering/elementwise.h"
#include "lowering/kernels.h"
#include "lowering/size_arithmetic.h"
#include "lowering/vectors.h"

namespace exportguard::lowering {
namespace {

/// The sizes that two tensors broadcast to.
std::vector<Size> common_sizes(LoweringContext& ctx, Value* a, Value* b) {
  if (ctx.rank(a) < ctx.rank(b)) std::swap(a, b);
  std::vector<Size> sizes = ctx.sizes_of(a);
  const std::vector<Size> other = ctx.sizes_of(b);
  const std::size_t offset = sizes.size() - other.size();
  for (std::size_t i = 0; i < other.size(); ++i) {
    sizes[offset + i] = broadcast(ctx, sizes[offset + i], other[i]);
  }
  return sizes;
}

void lower_masked_select(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  Value* mask = ctx.cast(ctx.input(1), DType::kBool);
  const std::vector<Size> sizes = common_sizes(ctx, x, mask);
  Value* elements = flattened(ctx, ctx.expand(x, sizes));
  ctx.result(ctx.op("Compress", {elements, flattened(ctx, ctx.expand(mask, sizes))}, {{"axis", 0}}));
}

/// Where the flat mask is true: int64[n].
Value* true_positions(LoweringContext& ctx, Value* mask) { return ctx.squeeze(ctx.op("NonZero", {mask}), {0}); }

/// The true elements of the mask take the elements of the source, one after the other.
void lower_masked_scatter(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  Value* mask = ctx.cast(ctx.input(1), DType::kBool);
  const std::vector<Size> sizes = common_sizes(ctx, x, mask);
  Value* positions = true_positions(ctx, flattened(ctx, ctx.expand(mask, sizes)));
  Value* source = flattened(ctx, ctx.cast(ctx.input(2), x->dtype()));
  Value* taken = ctx.op("Slice", {source, ctx.ints({0}), ctx.op("Shape", {positions})});
  Value* written = ctx.op("ScatterElements", {flattened(ctx, ctx.expand(x, sizes)), positions, taken}, {{"axis", 0}});
  ctx.result(ctx.reshape(written, sizes));
}

// ------------------------------------------------------------------------------------------------ places of what is
// not 0

/// int64[rank, n]. A dtype without a kernel, of which a narrower one may have no number but 0, is compared first.
Value* columns_of_places(LoweringContext& ctx, Value* x) {
  Value* vector = as_vector(ctx, x);
  return ctx.op("NonZero", {has_kernel(ctx.target(), "NonZero", x->dtype()) ? vector : as_bool(ctx, vector)});
}

/// int64[n, rank]. A number has no axes: then the rows are empty, one or none.
Value* places(LoweringContext& ctx, Value* x) {
  Value* rows = ctx.transpose(columns_of_places(ctx, x), {1, 0});
  return ctx.rank(x) == 0 ? ctx.slice(rows, 1, 0, 0) : rows;
}

void lower_nonzero(LoweringContext& ctx) { ctx.result(places(ctx, ctx.input(0))); }

void lower_nonzero_numpy(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  Value* columns = columns_of_places(ctx, x);
  std::vector<Value*> results;
  for (std::size_t i = 0; i < ctx.node().output_count(); ++i) {
    results.push_back(ctx.gather(columns, ctx.constant(static_cast<std::int64_t>(i), DType::kInt64), 0));
  }
  ctx.results(results);
}

void lower_nonzero_static(LoweringContext& ctx) {
  Value* found = places(ctx, ctx.input(0));
  const Size count = ctx.sizes(1).front();
  const Size columns = Size(static_cast<std::int64_t>(ctx.rank(ctx.input(0))));
  Value* filler = ctx.filled({count, columns}, ctx.constant(ctx.integer(2), DType::kInt64));
  ctx.result(ctx.slice(ctx.concat({found, filler}, 0), 0, 0, count));
}

}  // namespace

void populate_masking(LoweringTable& table) {
  table.add("aten.masked_select.default", lower_masked_select);
  table.add("aten.masked_scatter.default", lower_masked_scatter);
  table.add({"aten.nonzero.default", "aten.argwhere.default"}, lower_nonzero);
  table.add("aten.nonzero_numpy.default", lower_nonzero_numpy);
  table.add("aten.nonzero_static.default", lower_nonzero_static);
  table.add_complex({"aten.masked_select.default", "aten.masked_scatter.default"}, separate_each);
  table.add_complex({"aten.nonzero.default"}, separate_truth);
}

}  // namespace exportguard::lowering
