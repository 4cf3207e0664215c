#include "lowering/matrices.h"

#include <algorithm>

#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {

Value* doubled(LoweringContext& ctx, Value* x) { return ctx.cast(x, DType::kFloat64); }

Value* row_numbers(LoweringContext& ctx, const Size& rows) { return ctx.unsqueeze(range(ctx, rows), {1}); }

Value* column_numbers(LoweringContext& ctx, const Size& columns) { return range(ctx, columns); }

Value* row_at(LoweringContext& ctx, Value* x, Value* k) {
  return ctx.gather(x, k, static_cast<std::int64_t>(ctx.rank(x)) - 2);
}

Value* column_at(LoweringContext& ctx, Value* x, Value* k) {
  return ctx.gather(x, k, static_cast<std::int64_t>(ctx.rank(x)) - 1);
}

Value* element_at(LoweringContext& ctx, Value* x, Value* k) { return row_at(ctx, column_at(ctx, x, k), k); }

Value* matrix_transposed(LoweringContext& ctx, Value* x) { return ctx.swap_axes(x, -2, -1); }

Value* identity_matrix(LoweringContext& ctx, const Size& rows, const Size& columns) {
  return ctx.cast(ctx.op("Equal", {row_numbers(ctx, rows), column_numbers(ctx, columns)}), DType::kFloat64);
}

Value* identity_like(LoweringContext& ctx, const std::vector<Size>& sizes) {
  return ctx.expand(identity_matrix(ctx, sizes[sizes.size() - 2], sizes.back()), sizes);
}

Value* kept_where(LoweringContext& ctx, Value* condition, Value* x) {
  return ctx.where(condition, x, ctx.number_like(0, x));
}

Value* main_diagonal(LoweringContext& ctx, Value* x) {
  const auto rank = static_cast<std::int64_t>(ctx.rank(x));
  Value* is_on_it =
      ctx.op("Equal", {row_numbers(ctx, size_of(ctx, x, rank - 2)), column_numbers(ctx, size_of(ctx, x, rank - 1))});
  return ctx.reduce("ReduceSum", kept_where(ctx, is_on_it, x), {rank - 1}, false);
}

std::vector<Size> batch_sizes(LoweringContext& ctx, Value* x) {
  ctx.require(ctx.rank(x) >= 2, "a matrix has at least two axes");
  std::vector<Size> sizes = ctx.sizes_of(x);
  sizes.resize(sizes.size() - 2, Size(0));
  return sizes;
}

std::vector<Size> with_sizes(std::vector<Size> batch, const std::vector<Size>& last) {
  batch.insert(batch.end(), last.begin(), last.end());
  return batch;
}

Size smaller(LoweringContext& ctx, const Size& a, const Size& b) {
  if (a.number() && b.number()) return std::min(*a.number(), *b.number());
  return Size(ctx.op("Min", {as_dim(ctx, a), as_dim(ctx, b)}));
}

}  // namespace exportguard::lowering
