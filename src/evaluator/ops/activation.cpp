// Activations. Those of several steps are computed in float32 for float16 and bfloat16, and rounded once.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/celu.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;

template <typename Compute>
void rounded_once(Call& call, Compute compute) {
  call.result(in_float(call.input(0), compute));
}

void run_relu(Call& call) { call.result(narrowed(widened(call.input(0)).clamp_min(0), call.input(0).scalar_type())); }
void run_leaky_relu(Call& call) { call.result(at::leaky_relu(call.input(0), call.number("alpha", 0.01))); }
void run_elu(Call& call) { call.result(at::elu(call.input(0), call.number("alpha", 1.0))); }

void run_selu(Call& call) {
  const double alpha = call.number("alpha", 1.67326319217681884765625);
  const double gamma = call.number("gamma", 1.05070102214813232421875);
  call.result(at::elu(call.input(0), alpha, gamma));
}

void run_celu(Call& call) { call.result(at::celu(call.input(0), call.number("alpha", 1.0))); }

void run_prelu(Call& call) {
  const Tensor& slope = call.input(1);
  const Tensor& x = call.input(0);
  if (is_wide_unsigned(x.scalar_type())) return call.result(x.expand(at::infer_size(x.sizes(), slope.sizes())));
  call.result(narrowed(at::where(widened(x).lt(0), widened(x).mul(widened(slope)), widened(x)), x.scalar_type()));
}

void run_hard_sigmoid(Call& call) {
  const double alpha = call.number("alpha", 0.2);
  const double beta = call.number("beta", 0.5);
  rounded_once(call, [&](const Tensor& x) { return x.mul(alpha).add(beta).clamp(0, 1); });
}

void run_hard_swish(Call& call) {
  rounded_once(call, [](const Tensor& x) { return x.mul(x.div(6).add(0.5).clamp(0, 1)); });
}

void run_softplus(Call& call) {
  rounded_once(call, [](const Tensor& x) { return x.clamp_min(0).add(x.abs().neg().exp().log1p()); });
}

void run_softsign(Call& call) {
  rounded_once(call, [](const Tensor& x) { return x.div(x.abs().add(1)); });
}

void run_thresholded_relu(Call& call) {
  const Tensor& x = call.input(0);
  call.result(at::where(x.gt(call.number("alpha", 1.0)), x, at::zeros_like(x)));
}

void run_mish(Call& call) { call.result(at::mish(call.input(0))); }

void run_gelu(Call& call) {
  const std::string approximate = call.text("approximate", "none");
  call.require(approximate == "none" || approximate == "tanh", "approximate must be 'none' or 'tanh'");
  const Tensor& x = call.input(0);
  const Tensor result = at::gelu(x, approximate);
  const bool is_of_onednn = approximate == "none" && x.is_cpu() && x.scalar_type() == at::kFloat && x.numel() > 0;
  const bool is_finite = !is_of_onednn || x.amax().item<float>() < std::numeric_limits<float>::infinity();
  call.result(is_finite ? result : at::where(x.isposinf(), x, result));  // oneDNN makes NaN of infinity
}

Tensor swish(const Tensor& x, double alpha) {
  if (alpha == 1.0) return at::silu(x);
  return in_float(x, [&](const Tensor& raw) { return raw.mul(raw.mul(alpha).sigmoid()); });
}

void run_swish(Call& call) { call.result(swish(call.input(0), call.number("alpha", 1.0))); }
void run_quick_gelu(Call& call) { call.result(swish(call.input(0), call.number("alpha", 1.702))); }

void run_shrink(Call& call) {
  const Tensor& x = call.input(0);
  const double bias = call.number("bias", 0.0);
  const double limit = call.number("lambd", 0.5);
  const Tensor moved_up = x.add(bias).to(x.scalar_type());
  const Tensor moved_down = x.sub(bias).to(x.scalar_type());
  call.result(at::where(x.lt(-limit), moved_up, at::where(x.gt(limit), moved_down, at::zeros_like(x))));
}

// Bounds are attributes before opset 11. Where the lower one is above the upper one, the upper one holds.
// A number that equals a bound stays, as -0 beside 0 does in torch and in most of onnxruntime's kernels; NaN goes on
// from both.
Tensor at_least(const Tensor& x, const Tensor& low) { return at::where(x.eq(low), x, at::maximum(x, low)); }
Tensor at_most(const Tensor& x, const Tensor& high) { return at::where(x.eq(high), x, at::minimum(x, high)); }

void run_clip(Call& call) {
  const Tensor& x = call.input(0);
  Tensor result = ordered(x);
  const auto bound = [&](const Tensor& number) { return ordered(number).reshape({}); };
  const auto attribute = [&](const char* name) { return at::full({}, call.number(name, 0), result.options()); };
  if (call.has("min")) result = at_least(result, attribute("min"));
  if (call.has(1)) result = at_least(result, bound(call.input(1)));
  if (call.has("max")) result = at_most(result, attribute("max"));
  if (call.has(2)) result = at_most(result, bound(call.input(2)));
  call.result(from_ordered(result, x.scalar_type()));
}

// ---------------------------------------------------------------- along one axis

// Before opset 13 all axes from `axis` on are one.
template <typename Compute>
void along_axis(Call& call, Compute compute) {
  const Tensor& x = call.input(0);
  if (call.opset() >= 13) return call.result(compute(x, call.axis(call.integer("axis", -1), x.dim())));
  const std::int64_t axis = x.dim() == 0 ? 0 : call.axis(call.integer("axis", 1), x.dim());
  std::int64_t rows = 1;
  for (std::int64_t i = 0; i < axis; ++i) rows *= x.size(i);
  const Tensor flat = rows == 0 ? x : x.reshape({rows, x.numel() / rows});
  call.result(compute(flat, flat.dim() - 1).reshape(x.sizes()));
}

void run_softmax(Call& call) {
  along_axis(call, [](const Tensor& x, std::int64_t axis) { return at::softmax(x, axis); });
}

void run_log_softmax(Call& call) {
  along_axis(call, [](const Tensor& x, std::int64_t axis) { return at::log_softmax(x, axis); });
}

void run_hardmax(Call& call) {
  along_axis(call, [](const Tensor& x, std::int64_t axis) {
    const Tensor zeros = at::zeros_like(x);
    return x.numel() == 0 ? zeros : zeros.scatter(axis, x.argmax(axis, true), 1);
  });
}

}  // namespace

void populate_activation(OperatorTable& table) {
  table.add("Relu", run_relu);
  table.add("LeakyRelu", run_leaky_relu);
  table.add("Elu", run_elu);
  table.add("Selu", run_selu);
  table.add("Celu", run_celu);
  table.add("PRelu", run_prelu);
  table.add("HardSigmoid", run_hard_sigmoid);
  table.add("HardSwish", run_hard_swish);
  table.add("Softplus", run_softplus);
  table.add("Softsign", run_softsign);
  table.add("ThresholdedRelu", run_thresholded_relu);
  table.add("Mish", run_mish);
  table.add({"Gelu", "com.microsoft::Gelu"}, run_gelu);
  table.add("Swish", run_swish);
  table.add("com.microsoft::QuickGelu", run_quick_gelu);
  table.add("Shrink", run_shrink);
  table.add("Clip", run_clip);

  table.add("Softmax", run_softmax);
  table.add("LogSoftmax", run_log_softmax);
  table.add("Hardmax", run_hardmax);
}

}  // namespace exportguard::evaluator
