#include "exportguard/lowering/table.h"
#include "lowering/kernels.h"
#include "lowering/size_arithmetic.h"

/// Covariances and correlations of the rows of a matrix, over any number of columns.
namespace exportguard::lowering {
namespace {

/// How heavy each column is; null where all are alike.
struct Weights {
  Value* columns = nullptr;
  Value* importance = nullptr;  ///< the part of it that is no count
};

Value* sum_of(LoweringContext& ctx, Value* x) { return ctx.reduce("ReduceSum", x, {}, false); }

/// What the sums are divided by: the weight of all columns, less what the correction takes off.
Value* divisor_of(LoweringContext& ctx, const Weights& weights, Value* total, double correction) {
  Value* taken = ctx.number_like(correction, total);
  if (weights.importance != nullptr && correction != 0) {
    Value* heavy = sum_of(ctx, ctx.op("Mul", {weights.columns, weights.importance}));
    taken = ctx.op("Mul", {taken, ctx.op("Div", {heavy, total})});
  }
  return ctx.op("Max", {ctx.op("Sub", {total, taken}), ctx.number_like(0, total)});
}

/// [rows, rows] of [rows, columns]
Value* covariance(LoweringContext& ctx, Value* rows, const Weights& weights, double correction) {
  Value* total =
      weights.columns ? sum_of(ctx, weights.columns) : ctx.cast(as_scalar(ctx, size_of(ctx, rows, 1)), rows->dtype());
  const auto weighted = [&](Value* x) { return weights.columns ? ctx.op("Mul", {x, weights.columns}) : x; };
  Value* mean = ctx.op("Div", {ctx.reduce("ReduceSum", weighted(rows), {1}, true), total});
  Value* centred = ctx.op("Sub", {rows, mean});
  Value* products = ctx.op("MatMul", {centred, ctx.transpose(weighted(centred), {1, 0})});
  return ctx.op("Div", {products, divisor_of(ctx, weights, total, correction)});
}

/// A vector is one row.
Value* rows_of(LoweringContext& ctx) {
  Value* x = ctx.cast(ctx.input(0), ctx.output_dtype());
  return ctx.rank(x) == 2 ? x : ctx.reshape(x, {1, -1});
}

/// cov(self, correction, fweights, aweights)
void lower_cov(LoweringContext& ctx) {
  Weights weights;
  for (const std::size_t i : {2, 3}) {
    if (!ctx.has(i)) continue;
    Value* given = ctx.cast(ctx.input(i), ctx.output_dtype());
    weights.columns = weights.columns ? ctx.op("Mul", {weights.columns, given}) : given;
    if (i == 3) weights.importance = given;
  }
  ctx.result(ctx.reshape_like_output(covariance(ctx, rows_of(ctx), weights, ctx.number(1))));
}

void lower_corrcoef(LoweringContext& ctx) {
  Value* found = covariance(ctx, rows_of(ctx), {}, 1);
  Value* numbers = range(ctx, size_of(ctx, found, 0));
  Value* is_diagonal = ctx.op("Equal", {ctx.unsqueeze(numbers, {1}), numbers});
  Value* of_each = ctx.reduce("ReduceSum", ctx.where(is_diagonal, found, ctx.number_like(0, found)), {1}, true);
  Value* spread = ctx.op("Sqrt", {of_each});
  Value* scaled = ctx.op("Div", {ctx.op("Div", {found, spread}), ctx.transpose(spread, {1, 0})});
  Value* is_below = ctx.op("Less", {scaled, ctx.number_like(-1, scaled)});
  Value* is_above = ctx.op("Greater", {scaled, ctx.number_like(1, scaled)});
  scaled = ctx.where(is_below, ctx.number_like(-1, scaled), scaled);
  ctx.result(ctx.reshape_like_output(ctx.where(is_above, ctx.number_like(1, scaled), scaled)));
}

}  // namespace

void populate_covariance(LoweringTable& table) {
  table.add("aten.cov.default", lower_cov);
  table.add("aten.corrcoef.default", lower_corrcoef);
}

}  // namespace exportguard::lowering
