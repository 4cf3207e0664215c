#include <cmath>
#include <numbers>

#include "exportguard/lowering/table.h"
#include "lowering/complex_arithmetic.h"
#include "lowering/double_functions.h"
#include "lowering/elementwise.h"
#include "lowering/integer_arithmetic.h"
#include "lowering/kernels.h"

namespace exportguard::lowering {
namespace {

/// One ONNX operator over the input in the dtype of the output; integers become floats where torch says so.
void lower_as(LoweringContext& ctx, std::string_view op, ir::AttributeList attributes = {}) {
  ctx.result(kernel_op(ctx, op, {ctx.cast(ctx.input(0), ctx.output_dtype())}, std::move(attributes)));
}

Value* clipped(LoweringContext& ctx, Value* x, double low, double high) {
  return kernel_op(ctx, "Clip", {x, ctx.number_like(low, x), ctx.number_like(high, x)});
}

void lower_sigmoid(LoweringContext& ctx) { lower_as(ctx, "Sigmoid"); }
void lower_tanh(LoweringContext& ctx) { lower_as(ctx, "Tanh"); }

void lower_relu(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  ctx.result(is_floating(x->dtype()) ? ctx.op("Relu", {x}) : larger_of(ctx, x, ctx.number_like(0, x)));
}

void lower_relu6(LoweringContext& ctx) { ctx.result(clipped(ctx, ctx.input(0), 0, 6)); }
void lower_hardtanh(LoweringContext& ctx) { ctx.result(clipped(ctx, ctx.input(0), ctx.number(1), ctx.number(2))); }

void lower_silu(LoweringContext& ctx) {
  Value* x = rounded_once(ctx, ctx.input(0));
  ctx.result(ctx.op("Mul", {x, ctx.op("Sigmoid", {x})}));
}

Value* times(LoweringContext& ctx, Value* x, double factor) {
  return factor == 1 ? x : ctx.op("Mul", {x, ctx.number_like(factor, x)});
}

/// x (1 + curve) / 2
Value* gated_by(LoweringContext& ctx, Value* x, Value* curve) {
  return ctx.op("Mul", {times(ctx, x, 0.5), ctx.op("Add", {curve, ctx.number_like(1, curve)})});
}

Value* gelu_of_erf(LoweringContext& ctx, Value* x) {
  return gated_by(ctx, x, float_function(ctx, "Erf", times(ctx, x, 1 / std::numbers::sqrt2)));
}

Value* gelu_of_tanh(LoweringContext& ctx, Value* x) {
  Value* cube = ctx.op("Mul", {ctx.op("Mul", {x, x}), x});
  Value* inner = ctx.op("Add", {x, times(ctx, cube, 0.044715)});
  return gated_by(ctx, x, ctx.op("Tanh", {times(ctx, inner, std::sqrt(2 / std::numbers::pi))}));
}

void lower_gelu(LoweringContext& ctx) {
  const std::string approximate(ctx.text(1));
  const bool has_own_kernel = has_kernel(ctx.target(), "Gelu", ctx.output_dtype());
  if (ctx.opset() >= 20 && has_own_kernel) return lower_as(ctx, "Gelu", {{"approximate", approximate}});
  Value* x = rounded_once(ctx, ctx.input(0));
  ctx.result(approximate == "tanh" ? gelu_of_tanh(ctx, x) : gelu_of_erf(ctx, x));
}

/// scale (x if x > 0, else alpha (exp(input_scale x) - 1))
Value* exponential_unit(LoweringContext& ctx, Value* x, double alpha, double input_scale) {
  Value* below = times(ctx, exp_minus_one(ctx, times(ctx, x, input_scale)), alpha);
  return ctx.where(kernel_op(ctx, "Greater", {x, ctx.number_like(0, x)}), x, below);
}

void lower_elu(LoweringContext& ctx) {
  const double alpha = ctx.number(1);
  const double scale = ctx.number(2);
  const double input_scale = ctx.number(3);
  Value* x = rounded_once(ctx, ctx.input(0));
  if (input_scale == 1 && has_kernel(ctx.target(), "Elu", x->dtype())) {
    return ctx.result(times(ctx, ctx.op("Elu", {x}, {{"alpha", alpha}}), scale));
  }
  ctx.result(times(ctx, exponential_unit(ctx, x, alpha, input_scale), scale));
}

void lower_celu(LoweringContext& ctx) {
  const double alpha = ctx.number(1);
  ctx.result(exponential_unit(ctx, rounded_once(ctx, ctx.input(0)), alpha, 1 / alpha));
}

// Where a target has these in float32 at most, a float64 is computed from what it has there.

void lower_selu(LoweringContext& ctx) {
  if (has_kernel(ctx.target(), "Selu", ctx.output_dtype())) return lower_as(ctx, "Selu");
  constexpr double kAlpha = 1.6732632423543772848170429916717;
  constexpr double kScale = 1.0507009873554804934193349852946;
  ctx.result(times(ctx, exponential_unit(ctx, rounded_once(ctx, ctx.input(0)), kAlpha, 1), kScale));
}

Value* hard_sigmoid(LoweringContext& ctx, Value* x) {
  return clipped(ctx, ctx.op("Add", {ctx.op("Div", {x, ctx.number_like(6, x)}), ctx.number_like(0.5, x)}), 0, 1);
}

void lower_hardsigmoid(LoweringContext& ctx) {
  const bool runs = has_kernel(ctx.target(), "HardSigmoid", ctx.output_dtype());
  if (runs) return lower_as(ctx, "HardSigmoid", {{"alpha", 1.0 / 6}, {"beta", 0.5}});
  ctx.result(hard_sigmoid(ctx, rounded_once(ctx, ctx.input(0))));
}

void lower_hardswish(LoweringContext& ctx) {
  Value* x = rounded_once(ctx, ctx.input(0));
  if (has_kernel(ctx.target(), "HardSwish", ctx.output_dtype())) return lower_as(ctx, "HardSwish");
  ctx.result(ctx.op("Mul", {x, hard_sigmoid(ctx, x)}));
}

/// x where it is not negative, else `slope` x.
Value* leaky(LoweringContext& ctx, Value* x, Value* slope) {
  return ctx.where(kernel_op(ctx, "Less", {x, ctx.number_like(0, x)}), ctx.op("Mul", {x, slope}), x);
}

void lower_leaky_relu(LoweringContext& ctx) {
  Value* x = rounded_once(ctx, ctx.input(0));
  const bool runs = has_kernel(ctx.target(), "LeakyRelu", ctx.output_dtype());
  if (runs) return lower_as(ctx, "LeakyRelu", {{"alpha", ctx.number(1)}});
  ctx.result(leaky(ctx, x, ctx.number_like(ctx.number(1), x)));
}

Value* parametric(LoweringContext& ctx, Value* x, Value* weight) {
  return has_kernel(ctx.target(), "PRelu", x->dtype()) ? ctx.op("PRelu", {x, weight}) : leaky(ctx, x, weight);
}

/// The weight has one element or one for each of the channels, which are axis 1.
void lower_prelu(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  Value* weight = ctx.input(1);
  const std::size_t rank = ctx.rank(x);
  const bool is_single = ctx.rank(weight) == 0 || ctx.size(weight, 0).constant() == 1;
  if (is_single) {
    weight = ctx.reshape(weight, {});
  } else {
    std::vector<std::int64_t> axes;
    for (std::size_t axis = 1; axis + 1 < rank; ++axis) axes.push_back(static_cast<std::int64_t>(axis));
    weight = ctx.unsqueeze(weight, axes);
  }
  ctx.result(parametric(ctx, x, weight));
}

void lower_prelu_kernel(LoweringContext& ctx) { ctx.result(parametric(ctx, ctx.input(0), ctx.input(1))); }

/// log(1 + exp(x))
Value* softplus(LoweringContext& ctx, Value* x) {
  if (has_kernel(ctx.target(), "Softplus", x->dtype())) return ctx.op("Softplus", {x});
  Value* curve = log_one_plus(ctx, ctx.op("Exp", {ctx.op("Neg", {ctx.op("Abs", {x})})}));
  return ctx.op("Add", {ctx.op("Max", {x, ctx.number_like(0, x)}), curve});
}

/// x tanh(log(1 + exp(x)))
void lower_mish(LoweringContext& ctx) {
  Value* x = rounded_once(ctx, ctx.input(0));
  if (has_kernel(ctx.target(), "Mish", ctx.output_dtype())) return lower_as(ctx, "Mish");
  ctx.result(ctx.op("Mul", {x, ctx.op("Tanh", {softplus(ctx, x)})}));
}

void lower_softplus(LoweringContext& ctx) {
  const double beta = ctx.number(1);
  const double threshold = ctx.number(2);
  Value* x = rounded_once(ctx, ctx.input(0));
  Value* scaled = times(ctx, x, beta);
  Value* curve = times(ctx, softplus(ctx, scaled), 1 / beta);
  const bool is_linear_anyway = threshold >= 20 && x->dtype() != DType::kFloat64;  // exp(-20) is lost beside 20
  if (is_linear_anyway) return ctx.result(curve);
  Value* is_linear = kernel_op(ctx, "Greater", {scaled, ctx.number_like(threshold, x)});
  ctx.result(ctx.where(is_linear, x, curve));
}

/// Subtracted from zero, not negated: where nothing is left it is +0.
Value* log_sigmoid(LoweringContext& ctx, Value* x) {
  Value* drop = softplus(ctx, ctx.op("Neg", {x}));
  return ctx.op("Sub", {ctx.number_like(0, drop), drop});
}

void lower_log_sigmoid(LoweringContext& ctx) { ctx.result(log_sigmoid(ctx, rounded_once(ctx, ctx.input(0)))); }

void lower_log_sigmoid_forward(LoweringContext& ctx) {
  ctx.results({log_sigmoid(ctx, rounded_once(ctx, ctx.input(0))), nullptr});
}

void lower_threshold(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  Value* is_below = kernel_op(ctx, "LessOrEqual", {x, ctx.scalar(1, x->dtype())});
  ctx.result(ctx.where(is_below, ctx.scalar(2, x->dtype()), x));
}

/// The sizes of halves are written where they are not known: Split itself makes unequal ones of an odd axis.
void lower_glu(LoweringContext& ctx) {
  Value* x = rounded_once(ctx, ctx.input(0));
  const auto axis = ctx.axis(1, ctx.rank(x));
  const bool is_known = ctx.size(x, axis).constant().has_value();
  Value* half = is_known ? nullptr : ctx.op("Div", {ctx.dim_of(x, axis), ctx.ints({2})});
  const auto halves = is_known ? ctx.op_many("Split", {x}, 2, {{"axis", axis}, {"num_outputs", 2}})
                               : ctx.op_many("Split", {x, ctx.concat({half, half}, 0)}, 2, {{"axis", axis}});
  ctx.result(ctx.op("Mul", {halves[0], ctx.op("Sigmoid", {halves[1]})}));
}

/// Inside [-lambd, lambd].
Value* is_within(LoweringContext& ctx, Value* x, Value* lambd) {
  return kernel_op(ctx, "LessOrEqual", {ctx.op("Abs", {x}), lambd});
}

void lower_hardshrink(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  ctx.result(ctx.where(is_within(ctx, x, ctx.scalar(1, x->dtype())), ctx.number_like(0, x), x));
}

void lower_softshrink(LoweringContext& ctx) {
  Value* x = rounded_once(ctx, ctx.input(0));
  Value* lambd = ctx.scalar(1, x->dtype());
  Value* zero = ctx.number_like(0, x);
  Value* is_above = kernel_op(ctx, "Greater", {x, zero});
  Value* shrunk = ctx.where(is_above, ctx.op("Sub", {x, lambd}), ctx.op("Add", {x, lambd}));
  ctx.result(ctx.where(is_within(ctx, x, lambd), zero, shrunk));
}

/// The mean of the two slopes, as in evaluation; training draws slopes at random.
Value* rrelu(LoweringContext& ctx, std::size_t lower, std::size_t training) {
  ctx.require(!ctx.flag(training), "random slopes have no ONNX operator; export the model in eval mode");
  const double slope = (ctx.number(lower) + ctx.number(lower + 1)) / 2;
  Value* x = rounded_once(ctx, ctx.input(0));
  if (!has_kernel(ctx.target(), "LeakyRelu", x->dtype())) return leaky(ctx, x, ctx.number_like(slope, x));
  return ctx.op("LeakyRelu", {x}, {{"alpha", slope}});
}

void lower_rrelu(LoweringContext& ctx) { ctx.result(rrelu(ctx, 1, 3)); }

void lower_rrelu_with_noise_functional(LoweringContext& ctx) { ctx.results({rrelu(ctx, 2, 4), ctx.input(1)}); }

/// 1 / (1 + exp(-z))
void separate_sigmoid(ComplexSite& site) {
  const Parts z = site.parts(0);
  const ir::Type& type = z.real->type();
  const Parts tail =
      exponential(site, {of_part(site, "neg.default", z.real), of_part(site, "neg.default", z.imaginary)});
  Value* real = site.emit("add.Tensor", {tail.real, literal(std::int64_t{1})}, type);
  site.give(inverted(site, {real, tail.imaginary}));
}

}  // namespace

void populate_activation(LoweringTable& table) {
  table.add({"aten.sigmoid.default", "aten.special_expit.default"}, lower_sigmoid);
  table.add("aten.tanh.default", lower_tanh);
  table.add("aten.relu.default", lower_relu);
  table.add("aten.relu6.default", lower_relu6);
  table.add("aten.hardtanh.default", lower_hardtanh);
  table.add("aten.silu.default", lower_silu);
  table.add("aten.gelu.default", lower_gelu);
  table.add("aten.mish.default", lower_mish);
  table.add("aten.hardswish.default", lower_hardswish);
  table.add("aten.hardsigmoid.default", lower_hardsigmoid);
  table.add("aten.leaky_relu.default", lower_leaky_relu);
  table.add("aten.elu.default", lower_elu);
  table.add("aten.selu.default", lower_selu);
  table.add("aten.celu.default", lower_celu);
  table.add("aten.prelu.default", lower_prelu);
  table.add("aten._prelu_kernel.default", lower_prelu_kernel);
  table.add("aten.softplus.default", lower_softplus);
  table.add("aten.log_sigmoid.default", lower_log_sigmoid);
  table.add("aten.log_sigmoid_forward.default", lower_log_sigmoid_forward);
  table.add("aten.threshold.default", lower_threshold);
  table.add("aten.glu.default", lower_glu);
  table.add("aten.hardshrink.default", lower_hardshrink);
  table.add("aten.softshrink.default", lower_softshrink);
  table.add("aten.rrelu.default", lower_rrelu);
  table.add("aten.rrelu_with_noise_functional.default", lower_rrelu_with_noise_functional);

  table.add_complex({"aten.sigmoid.default"}, separate_sigmoid);
}

}  // namespace exportguard::lowering
