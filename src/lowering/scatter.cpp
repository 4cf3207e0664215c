#include "lowering/scatter.h"

#include <limits>

#include "lowering/axes.h"
#include "lowering/kernels.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

std::string onnx_name(Reduction reduction) {
  switch (reduction) {
    case Reduction::kAdd:
      return "add";
    case Reduction::kMultiply:
      return "mul";
    case Reduction::kMaximum:
      return "max";
    case Reduction::kMinimum:
      return "min";
    default:
      return "none";
  }
}

/// Every target copies every dtype. ONNX reduces no bools: they are bytes.
DType scatter_dtype(LoweringContext& ctx, DType dtype, Reduction reduction) {
  if (reduction == Reduction::kNone) return dtype;
  return dtype == DType::kBool ? DType::kUint8 : kernel_dtype(ctx, "Scatter:reduction", dtype);
}

Value* scattered(LoweringContext& ctx, std::string_view op, const std::vector<Value*>& operands,
                 std::optional<std::int64_t> axis, Reduction reduction) {
  const DType dtype = operands[0]->dtype();
  const DType carrier = scatter_dtype(ctx, dtype, reduction);
  std::vector<ir::NamedAttribute> attributes;
  if (axis) attributes.emplace_back("axis", *axis);
  if (reduction != Reduction::kNone) attributes.emplace_back("reduction", onnx_name(reduction));
  // A bool is summed as a byte: what is not 0 is true, and 256 of them would be 0. Its maximum says the same.
  const bool is_bool_sum = dtype == DType::kBool && reduction == Reduction::kAdd;
  if (is_bool_sum) std::get<std::string>(attributes.back().second) = "max";
  const std::vector<Value*> cast = {ctx.cast(operands[0], carrier), operands[1],
                                    ctx.cast(ctx.cast(operands[2], dtype), carrier)};
  Value* made = ctx.cast(ctx.op(op, cast, std::move(attributes)), dtype);
  made->set_type(operands[0]->type());
  return made;
}

/// As above; NaN stays in a maximum and a minimum, which ONNX leaves open.
Value* scattered_with_nan(LoweringContext& ctx, std::string_view op, const std::vector<Value*>& operands,
                          std::optional<std::int64_t> axis, Reduction reduction) {
  Value* made = scattered(ctx, op, operands, axis, reduction);
  const bool is_extreme = reduction == Reduction::kMaximum || reduction == Reduction::kMinimum;
  if (!is_extreme || !is_floating(made->dtype())) return made;
  const auto is_nan = [&](Value* x) { return ctx.cast(kernel_op(ctx, "IsNaN", {x}), DType::kUint8); };
  Value* updates = ctx.cast(operands[2], made->dtype());
  Value* has_nan = scattered(ctx, op, {is_nan(operands[0]), operands[1], is_nan(updates)}, axis, Reduction::kMaximum);
  Value* nan = ctx.number_like(std::numeric_limits<double>::quiet_NaN(), made);
  return ctx.where(ctx.cast(has_nan, DType::kBool), nan, made);
}

}  // namespace

Reduction reduction_named(LoweringContext& ctx, std::string_view name) {
  if (name == "sum" || name == "add" || name == "mean") return Reduction::kAdd;
  if (name == "prod" || name == "multiply") return Reduction::kMultiply;
  if (name == "amax") return Reduction::kMaximum;
  if (name != "amin") ctx.fail("the reduction must be sum, mean, prod, amax or amin, got " + std::string(name));
  return Reduction::kMinimum;
}

Value* scatter_elements(LoweringContext& ctx, Value* data, std::int64_t axis, Value* index, Value* updates,
                        Reduction reduction) {
  const bool is_empty = ctx.rank(data) > 0 && ctx.rank(index) > 0 && ctx.rank(data) != ctx.rank(index);
  if (is_empty) return data;  // torch takes no other index of another rank
  if (ctx.rank(data) != 0) return scattered_with_nan(ctx, "ScatterElements", {data, index, updates}, axis, reduction);
  const std::vector<Size> vector = {Size(-1)};
  Value* made = scattered_with_nan(
      ctx, "ScatterElements", {ctx.reshape(data, vector), ctx.reshape(index, vector), ctx.reshape(updates, vector)}, 0,
      reduction);
  return ctx.squeeze(made, {0});
}

Value* scatter_nd(LoweringContext& ctx, Value* data, Value* index, Value* updates, Reduction reduction) {
  return scattered_with_nan(ctx, "ScatterND", {data, ctx.cast(index, DType::kInt64), updates}, std::nullopt, reduction);
}

Value* scatter_slices(LoweringContext& ctx, Value* data, std::int64_t axis, Value* index, Value* updates,
                      Reduction reduction) {
  if (axis == 0) return scatter_nd(ctx, data, ctx.unsqueeze(index, {1}), updates, reduction);
  Value* spread = ctx.expand(ctx.unsqueeze(index, other_axes(ctx.rank(data), axis)), ctx.sizes_of(updates));
  return scatter_elements(ctx, data, axis, spread, updates, reduction);
}

}  // namespace exportguard::lowering
