#include <limits>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/kernels.h"
#include "lowering/reductions.h"

namespace exportguard::lowering {
namespace {

/// Softmax or LogSoftmax in the dtype of the output, which the dtype argument has set. A tensor of rank 0 has one
/// element, and ONNX wants an axis for it.
void lower_normalized(LoweringContext& ctx, std::string_view op, bool negates) {
  const DType dtype = ctx.output_dtype();
  Value* x = ctx.cast(ctx.input(0), dtype);
  const std::size_t rank = ctx.rank(x);
  const std::int64_t axis = ctx.axis(1, rank);
  if (rank == 0) x = ctx.unsqueeze(x, {0});
  if (negates) x = ctx.op("Neg", {x});
  Value* y = same_dtype_op(ctx, op, {x}, {{"axis", axis}});
  ctx.result(rank == 0 ? ctx.squeeze(y, {0}) : y);
}

void lower_softmax(LoweringContext& ctx) { lower_normalized(ctx, "Softmax", false); }
void lower_log_softmax(LoweringContext& ctx) { lower_normalized(ctx, "LogSoftmax", false); }
void lower_softmin(LoweringContext& ctx) { lower_normalized(ctx, "Softmax", true); }

/// Rows that are -inf throughout give zeros rather than NaN.
void lower_safe_softmax(LoweringContext& ctx) {
  const DType dtype = ctx.output_dtype();
  Value* x = ctx.cast(ctx.input(0), dtype);
  const std::int64_t axis = ctx.axis(1, ctx.rank(x));
  Value* largest = extreme_value(ctx, x, Extreme::kLargest, {{axis}, true});
  const double infinity = std::numeric_limits<double>::infinity();
  Value* is_empty = kernel_op(ctx, "Equal", {largest, ctx.number_like(-infinity, largest)});
  Value* y = same_dtype_op(ctx, "Softmax", {x}, {{"axis", axis}});
  ctx.result(ctx.where(is_empty, ctx.number_like(0, y), y));
}

Value* sum_along(LoweringContext& ctx, Value* x, std::int64_t axis) {
  return kernel_reduce(ctx, "ReduceSum", x, {axis}, true);
}

/// (gradient - sum(gradient output)) output
void lower_softmax_backward(LoweringContext& ctx) {
  Value* gradient = ctx.widened(ctx.input(0));
  Value* output = ctx.widened(ctx.input(1));
  Value* total = sum_along(ctx, ctx.op("Mul", {gradient, output}), ctx.axis(2, ctx.rank(output)));
  ctx.result(ctx.op("Mul", {ctx.op("Sub", {gradient, total}), output}));
}

/// gradient - exp(output) sum(gradient)
void lower_log_softmax_backward(LoweringContext& ctx) {
  Value* gradient = ctx.widened(ctx.input(0));
  Value* output = ctx.widened(ctx.input(1));
  Value* total = sum_along(ctx, gradient, ctx.axis(2, ctx.rank(output)));
  ctx.result(ctx.op("Sub", {gradient, ctx.op("Mul", {ctx.op("Exp", {output}), total})}));
}

}  // namespace

void populate_softmax(LoweringTable& table) {
  table.add({"aten.softmax.int", "aten._softmax.default", "aten.special_softmax.default"}, lower_softmax);
  table.add({"aten.log_softmax.int", "aten._log_softmax.default", "aten.special_log_softmax.default"},
            lower_log_softmax);
  table.add("aten.softmin.int", lower_softmin);
  table.add("aten._safe_softmax.default", lower_safe_softmax);
  table.add("aten._softmax_backward_data.default", lower_softmax_backward);
  table.add("aten._log_softmax_backward_data.default", lower_log_softmax_backward);
}

}  // namespace exportguard::lowering
