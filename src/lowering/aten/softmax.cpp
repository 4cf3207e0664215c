#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/kernels.h"
#include "lowering/reductions.h"

namespace exportguard::lowering {
namespace {

/// What a softmax reads, where it is arithmetic in float16; else null. A cast to a wider dtype hides it.
ir::Node* find_narrow_arithmetic(Value* x) {
  static constexpr std::string_view kOperators[] = {"Add", "Sub", "Mul", "Div", "Max", "Min"};
  ir::Node* node = x->producer();
  if (node != nullptr && node->is("", "Cast") && node->input(0).dtype() == DType::kFloat16)
    node = node->input(0).producer();
  const bool is_arithmetic = node != nullptr && node->domain().empty() && node->output().dtype() == DType::kFloat16 &&
                             std::ranges::find(kOperators, node->op()) != std::end(kOperators);
  return is_arithmetic ? node : nullptr;
}

/// The score of a hidden key is lost in the number that hides it: s - 65504 is -65504 in float16, for all keys that are
/// hidden alike, and a query that sees none of them averages. A target that hands on the float32 that it computed would
/// weigh them by s. Sums and products of two float16 numbers are exact enough in float32 to be rounded twice.
Value* rounded(LoweringContext& ctx, Value* x) {
  if (!departs(ctx, Departure::kFloat16Unrounded)) return x;
  ir::Node* shaped = x->producer();
  if (shaped != nullptr && shaped->is("", "Reshape")) {
    Value* given = rounded(ctx, &shaped->input(0));
    if (given == &shaped->input(0)) return x;
    const ir::Attribute* zero = shaped->find_attribute("allowzero");
    const std::int64_t allow_zero = zero ? std::get<std::int64_t>(*zero) : 0;
    return ctx.op("Reshape", {given, &shaped->input(1)}, {{"allowzero", allow_zero}});
  }

  ir::Node* node = find_narrow_arithmetic(x);
  if (node == nullptr) return x;
  std::vector<Value*> operands;
  for (std::size_t i = 0; i < node->input_count(); ++i) operands.push_back(ctx.cast(&node->input(i), DType::kFloat32));
  Value* wide = ctx.op(node->op(), operands);
  return ctx.cast(ctx.cast(wide, DType::kFloat16), DType::kFloat32);
}

/// Infinity less itself is NaN, for every element of the slice.
Value* log_softmax_of_doubles(LoweringContext& ctx, Value* x, Value* y, std::int64_t axis) {
  Value* largest = extreme_value(ctx, x, Extreme::kLargest, {{axis}, true});
  return ctx.op("Add", {y, ctx.op("Sub", {largest, largest})});
}

/// Softmax or LogSoftmax in the dtype of the output, which the dtype argument has set. A tensor of rank 0 has one
/// element, and ONNX wants an axis for it.
void lower_normalized(LoweringContext& ctx, std::string_view op, bool negates) {
  const DType dtype = ctx.output_dtype();
  Value* given = rounded(ctx, ctx.input(0));
  Value* x = given != ctx.input(0) && dtype == DType::kFloat16 ? given : ctx.cast(given, dtype);
  const std::size_t rank = ctx.rank(x);
  const std::int64_t axis = ctx.axis(1, rank);
  if (rank == 0) x = ctx.unsqueeze(x, {0});
  if (negates) x = ctx.op("Neg", {x});
  Value* y = ctx.cast(same_dtype_op(ctx, op, {x}, {{"axis", axis}}), dtype);
  const bool is_of_doubles = op == "LogSoftmax" && dtype == DType::kFloat64;
  if (is_of_doubles && departs(ctx, Departure::kLogSoftmaxOfInfinity)) y = log_softmax_of_doubles(ctx, x, y, axis);
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
