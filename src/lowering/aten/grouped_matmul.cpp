#include <string>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/contraction.h"
#include "lowering/kernels.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

/// The number of rows of each group from the ends of the groups, then the number of rows after the last one.
Value* group_sizes(LoweringContext& ctx, Value* ends, const Size& rows) {
  Value* ends64 = ctx.cast(ends, DType::kInt64);
  Value* with_rows = ctx.concat({ends64, as_dim(ctx, rows)}, 0);
  Value* starts = ctx.concat({ctx.ints({0}), ends64}, 0);
  return ctx.op("Sub", {with_rows, starts});
}

/// The rows of `x` are sorted by group; each group has its own matrix. A group without rows costs nothing, and
/// A runtime cuts a constant weight into its matrices once, when it loads the model. Rows after the last group are
/// zero.
Value* grouped_product(LoweringContext& ctx, Value* x, Value* weight, Value* ends) {
  const auto groups = ctx.size(weight, 0).constant();
  ctx.require(groups.has_value(), "the number of groups must be known");
  const auto count = static_cast<std::size_t>(*groups);
  const Size row_count = size_of(ctx, x, 0);
  Value* sizes = group_sizes(ctx, ends, row_count);
  const auto rows = ctx.op_many("Split", {x, sizes}, count + 1, {{"axis", 0}});
  const auto matrices = ctx.op_many("Split", {weight}, count, {{"axis", 0}, {"num_outputs", *groups}});
  std::vector<Value*> products;
  for (std::size_t i = 0; i < count; ++i) products.push_back(matmul(ctx, rows[i], ctx.squeeze(matrices[i], {0})));
  Value* rest = ctx.gather(sizes, ctx.ints({*groups}), 0);
  products.push_back(ctx.filled({Size(rest), size_of(ctx, weight, 2)}, ctx.number_like(0, products.front())));
  return ctx.concat(products, 0);
}

Value* grouped_matmul(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  Value* weight = ctx.input(1);
  Value* ends = ctx.find_input(2);
  if (ends == nullptr) return matmul(ctx, x, weight);
  ctx.require(ctx.rank(x) == 2 && ctx.rank(weight) == 3, "groups of rows need operands of rank 2 and 3, got " +
                                                             std::to_string(ctx.rank(x)) + " and " +
                                                             std::to_string(ctx.rank(weight)));
  return grouped_product(ctx, x, weight, ends);
}

void lower_grouped_mm(LoweringContext& ctx) {
  Value* product = grouped_matmul(ctx);
  Value* bias = ctx.find_input(3);
  ctx.result(bias ? same_dtype_op(ctx, "Add", {product, bias}) : product);
}

void lower_grouped_mm_fallback(LoweringContext& ctx) { ctx.result(grouped_matmul(ctx)); }

}  // namespace

void populate_grouped_matmul(LoweringTable& table) {
  table.add("aten._grouped_mm.default", lower_grouped_mm);
  table.add("transformers.grouped_mm_fallback.default", lower_grouped_mm_fallback);
}

}  // namespace exportguard::lowering
