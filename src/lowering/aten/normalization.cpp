#include <algorithm>
#include <limits>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/kernels.h"
#include "lowering/moments.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

// ------------------------------------------------------------------------------------------------ layer_norm

/// The axes of `x` that the argument `normalized_shape` covers: the last ones.
std::vector<std::int64_t> normalized_axes(LoweringContext& ctx, Value* x, std::size_t argument) {
  const std::size_t rank = ctx.rank(x);
  const std::size_t count = ctx.sizes(argument).size();
  ctx.require(count > 0 && count <= rank, "normalized_shape must have an axis, and no more than the input");
  return axes_between(rank - count, rank);
}

Value* ones_over(LoweringContext& ctx, Value* x, const std::vector<std::int64_t>& axes) {
  std::vector<Size> sizes;
  for (const std::int64_t axis : axes) sizes.push_back(size_of(ctx, x, axis));
  return ctx.filled(sizes, ctx.number_like(1, x));
}

/// LayerNormalization computes in float32 whatever the dtype of the input, as torch does.
Value* layer_norm(LoweringContext& ctx, const std::vector<std::int64_t>& axes, double epsilon) {
  Value* x = ctx.input(0);
  Value* weight = ctx.find_input(2);
  Value* bias = ctx.find_input(3);
  if (!holds(x->dtype(), epsilon)) {
    Value* y = standardized(ctx, x, moments(ctx, x, axes), epsilon);
    if (weight) y = ctx.op("Mul", {y, weight});
    return bias ? ctx.op("Add", {y, bias}) : y;
  }
  std::vector<Value*> operands = {x, weight ? ctx.cast(weight, x->dtype()) : ones_over(ctx, x, axes)};
  if (bias) operands.push_back(ctx.cast(bias, x->dtype()));
  return ctx.op("LayerNormalization", operands, {{"axis", axes.front()}, {"epsilon", epsilon}});
}

void lower_layer_norm(LoweringContext& ctx) {
  ctx.result(layer_norm(ctx, normalized_axes(ctx, ctx.input(0), 1), ctx.number(4)));
}

void lower_native_layer_norm(LoweringContext& ctx) {
  const auto axes = normalized_axes(ctx, ctx.input(0), 1);
  const double epsilon = ctx.number(4);
  Value* y = layer_norm(ctx, axes, epsilon);
  const ir::Node& node = ctx.node();
  if (node.output(1).is_unused() && node.output(2).is_unused()) return ctx.results({y, nullptr, nullptr});
  const Moments statistics = moments(ctx, ctx.widened(ctx.input(0)), axes);
  ctx.results({y, statistics.mean, inverse_root(ctx, statistics.variance, epsilon)});
}

// ------------------------------------------------------------------------------------------------ rms_norm

/// torch takes the machine epsilon of the dtype that it computes in.
double rms_epsilon(LoweringContext& ctx, std::size_t argument) {
  if (ctx.has(argument)) return ctx.number(argument);
  const bool is_double = ctx.input(0)->dtype() == DType::kFloat64;
  return is_double ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
}

/// 1 / sqrt(mean(x^2) + epsilon)
Value* inverse_rms(LoweringContext& ctx, Value* x, const std::vector<std::int64_t>& axes, double epsilon) {
  Value* square = ctx.op("Pow", {x, ctx.number_like(2, x)});
  return inverse_root(ctx, mean_over(ctx, square, axes), epsilon);
}

/// RMSNormalization came with opset 23. Of a weight of another dtype its result has that one, torch's the wider one.
bool has_rms_operator(LoweringContext& ctx, const Value* weight) {
  return ctx.opset() >= 23 && weight != nullptr && weight->dtype() == ctx.input(0)->dtype();
}

Value* rms_norm(LoweringContext& ctx, const std::vector<std::int64_t>& axes, double epsilon) {
  Value* weight = ctx.find_input(2);
  if (has_rms_operator(ctx, weight) && holds(ctx.input(0)->dtype(), epsilon)) {
    return ctx.op("RMSNormalization", {ctx.input(0), weight}, {{"axis", axes.front()}, {"epsilon", epsilon}});
  }
  Value* x = ctx.widened(ctx.input(0));
  Value* y = ctx.op("Mul", {x, inverse_rms(ctx, x, axes, epsilon)});
  return weight ? ctx.op("Mul", {y, ctx.cast(weight, y->dtype())}) : y;
}

void lower_rms_norm(LoweringContext& ctx) {
  ctx.result(rms_norm(ctx, normalized_axes(ctx, ctx.input(0), 1), rms_epsilon(ctx, 3)));
}

void lower_fused_rms_norm(LoweringContext& ctx) {
  const auto axes = normalized_axes(ctx, ctx.input(0), 1);
  const double epsilon = rms_epsilon(ctx, 3);
  Value* y = rms_norm(ctx, axes, epsilon);
  if (ctx.node().output(1).is_unused()) return ctx.results({y, nullptr});
  ctx.results({y, inverse_rms(ctx, ctx.widened(ctx.input(0)), axes, epsilon)});
}

// ------------------------------------------------------------------------------------------------ groups and instances

/// Every channel (axis 1) of every sample has mean 0 and variance 1. InstanceNormalization is the fast kernel; it wants
/// a spatial axis and has no doubles.
Value* normalized_channels(LoweringContext& ctx, Value* x, double epsilon) {
  const std::size_t rank = ctx.rank(x);
  const bool runs = rank > 2 && has_kernel(ctx.target(), "InstanceNormalization", x->dtype());
  if (!runs) return standardized(ctx, x, moments(ctx, x, axes_between(2, rank)), epsilon);
  const std::vector<Size> channels = {size_of(ctx, x, 1)};
  Value* one = ctx.filled(channels, ctx.number_like(1, x));
  Value* zero = ctx.filled(channels, ctx.number_like(0, x));
  return ctx.op("InstanceNormalization", {x, one, zero}, {{"epsilon", epsilon}});
}

/// [batch, channels, ...] as [batch, groups, rest].
Value* grouped(LoweringContext& ctx, Value* x, std::int64_t groups) {
  const auto channels = ctx.size(x, 1).constant();
  ctx.require(groups > 0 && (!channels || *channels % groups == 0), "num_groups must divide the number of channels");
  Size rest = channels ? Size(*channels / groups) : Size(ctx.op("Div", {ctx.dim_of(x, 1), ctx.ints({groups})}));
  for (std::size_t axis = 2; axis < ctx.rank(x); ++axis) {
    rest = multiply(ctx, rest, size_of(ctx, x, static_cast<std::int64_t>(axis)));
  }
  return ctx.reshape(x, {size_of(ctx, x, 0), groups, rest});
}

Value* group_norm(LoweringContext& ctx, std::int64_t groups, double epsilon) {
  Value* x = ctx.widened(ctx.input(0));
  return ctx.reshape(normalized_channels(ctx, grouped(ctx, x, groups), epsilon), ctx.sizes_of(ctx.input(0)));
}

void lower_group_norm(LoweringContext& ctx) {
  Value* y = group_norm(ctx, ctx.integer(1), ctx.number(4));
  ctx.result(scaled_channels(ctx, y, ctx.find_input(2), ctx.find_input(3)));
}

void lower_native_group_norm(LoweringContext& ctx) {
  const std::int64_t groups = ctx.integer(6);
  const double epsilon = ctx.number(7);
  Value* y = scaled_channels(ctx, group_norm(ctx, groups, epsilon), ctx.find_input(1), ctx.find_input(2));
  const ir::Node& node = ctx.node();
  if (node.output(1).is_unused() && node.output(2).is_unused()) return ctx.results({y, nullptr, nullptr});
  const Moments statistics = moments(ctx, grouped(ctx, ctx.widened(ctx.input(0)), groups), {2});
  Value* inverse = inverse_root(ctx, statistics.variance, epsilon);
  ctx.results({y, ctx.squeeze(statistics.mean, {2}), ctx.squeeze(inverse, {2})});
}

void lower_instance_norm(LoweringContext& ctx) {
  Value* x = ctx.widened(ctx.input(0));
  const double epsilon = ctx.number(7);
  Value* y = nullptr;
  if (ctx.flag(5)) {
    y = normalized_channels(ctx, x, epsilon);
  } else {
    const std::size_t rank = ctx.rank(x);
    const Moments statistics = {per_channel(ctx, ctx.cast(ctx.input(3), x->dtype()), rank),
                                per_channel(ctx, ctx.cast(ctx.input(4), x->dtype()), rank)};
    y = standardized(ctx, x, statistics, epsilon);
  }
  ctx.result(scaled_channels(ctx, y, ctx.find_input(1), ctx.find_input(2)));
}

// ------------------------------------------------------------------------------------------------ norms of vectors

Value* unit_vectors(LoweringContext& ctx, Value* x, std::int64_t axis, double epsilon) {
  Value* norm = ctx.reduce("ReduceL2", x, {axis}, true);
  return ctx.op("Div", {x, ctx.op("Max", {norm, ctx.number_like(epsilon, norm)})});
}

void lower_cosine_similarity(LoweringContext& ctx) {
  const DType dtype = ctx.output_dtype();
  Value* a = ctx.widened(ctx.cast(ctx.input(0), dtype));
  Value* b = ctx.widened(ctx.cast(ctx.input(1), dtype));
  const std::size_t rank = std::max(ctx.rank(a), ctx.rank(b));
  const double epsilon = ctx.number(3);
  const std::int64_t axis = ctx.axis(2, rank);
  a = ctx.unsqueeze(a, axes_between(0, rank - ctx.rank(a)));
  b = ctx.unsqueeze(b, axes_between(0, rank - ctx.rank(b)));
  const bool is_stretched = ctx.size(a, axis) != ctx.size(b, axis);  // torch broadcasts before it takes the norms
  if (is_stretched) {
    Value* zero = ctx.op("Mul", {ctx.op("Add", {a, b}), ctx.number_like(0, a)});
    a = ctx.op("Add", {a, zero});
    b = ctx.op("Add", {b, zero});
  }
  Value* product = ctx.op("Mul", {unit_vectors(ctx, a, axis, epsilon), unit_vectors(ctx, b, axis, epsilon)});
  ctx.result(ctx.reduce("ReduceSum", product, {axis}, false));
}

/// -1 leaves none out, as in `norm_except_dim`; other negative ones count from the end.
std::vector<std::int64_t> all_axes_but(LoweringContext& ctx, const Value* x, std::int64_t axis) {
  std::vector<std::int64_t> axes = axes_between(0, ctx.rank(x));
  std::erase(axes, axis < -1 ? axis + static_cast<std::int64_t>(ctx.rank(x)) : axis);
  return axes;
}

/// Slices along an axis whose norm is above the bound are scaled down to it.
void lower_renorm(LoweringContext& ctx) {
  Value* x = ctx.widened(ctx.input(0));
  const auto axes = all_axes_but(ctx, x, ctx.axis(2, ctx.rank(x)));
  Value* norm = p_norm(ctx, x, ctx.number(1), axes);
  Value* bound = ctx.scalar(3, x->dtype());
  Value* factor = ctx.op("Div", {bound, ctx.op("Add", {norm, ctx.number_like(1e-7, norm)})});
  Value* is_above = ctx.op("Greater", {norm, bound});
  ctx.result(ctx.op("Mul", {x, ctx.where(is_above, factor, ctx.number_like(1, x))}));
}

/// The norm of each slice of the weight's direction; -1 stands for one norm of the whole.
Value* direction_norm(LoweringContext& ctx, Value* direction, std::int64_t axis) {
  return p_norm(ctx, ctx.widened(direction), 2, all_axes_but(ctx, direction, axis));
}

Value* normed_weight(LoweringContext& ctx, Value* norm) {
  Value* direction = ctx.widened(ctx.input(0));
  return ctx.op("Mul", {direction, ctx.op("Div", {ctx.widened(ctx.input(1)), norm})});
}

void lower_weight_norm(LoweringContext& ctx) {
  ctx.result(normed_weight(ctx, direction_norm(ctx, ctx.input(0), ctx.integer(2))));
}

void lower_weight_norm_interface(LoweringContext& ctx) {
  Value* norm = direction_norm(ctx, ctx.input(0), ctx.integer(2));
  ctx.results({normed_weight(ctx, norm), norm});
}

/// -1 stands for one norm of the whole, of rank 0.
void lower_norm_except_dim(LoweringContext& ctx) {
  Value* x = ctx.widened(ctx.input(0));
  const auto axes = all_axes_but(ctx, x, ctx.integer(2));
  Value* norm = p_norm(ctx, x, ctx.number(1), axes);
  ctx.result(ctx.integer(2) == -1 ? ctx.squeeze(norm, axes) : norm);
}

}  // namespace

void populate_normalization(LoweringTable& table) {
  table.add("aten.layer_norm.default", lower_layer_norm);
  table.add("aten.native_layer_norm.default", lower_native_layer_norm);
  table.add("aten.rms_norm.default", lower_rms_norm);
  table.add("aten._fused_rms_norm.default", lower_fused_rms_norm);
  table.add("aten.group_norm.default", lower_group_norm);
  table.add("aten.native_group_norm.default", lower_native_group_norm);
  table.add("aten.instance_norm.default", lower_instance_norm);
  table.add("aten.cosine_similarity.default", lower_cosine_similarity);
  table.add("aten.renorm.default", lower_renorm);
  table.add("aten._weight_norm.default", lower_weight_norm);
  table.add("aten._weight_norm_interface.default", lower_weight_norm_interface);
  table.add("aten.norm_except_dim.default", lower_norm_except_dim);
}

}  // namespace exportguard::lowering
