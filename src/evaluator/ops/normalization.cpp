// Normalization. Statistics of float16 and bfloat16 are those of float32, and results are rounded once.
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;
using Sizes = std::vector<std::int64_t>;

// A vector over the channels, axis 1.
Tensor over_channels(const Tensor& vector, std::int64_t rank) {
  Sizes view(static_cast<std::size_t>(rank), 1);
  if (rank > 1) view[1] = vector.numel();
  return vector.reshape(view);
}

Sizes axes_from(std::int64_t first, std::int64_t rank) {
  Sizes axes;
  for (std::int64_t i = first; i < rank; ++i) axes.push_back(i);
  return axes;
}

struct Moments {
  Tensor mean;
  Tensor variance;
};

Moments moments(const Tensor& x, const Sizes& axes) {
  const Tensor mean = x.mean(axes, true);
  return {mean, x.sub(mean).square().mean(axes, true)};
}

Tensor normalized(const Tensor& x, const Moments& of, double epsilon) {
  return x.sub(of.mean).mul(of.variance.add(epsilon).rsqrt());
}

void run_batch_normalization(Call& call) {
  const Tensor& given = call.input(0);
  const Tensor x = raised(given);
  const double epsilon = call.number("epsilon", 1e-5);
  const auto channels = [&](std::size_t i) { return over_channels(raised(call.input(i)), x.dim()); };
  Moments used{channels(3), channels(4)};
  const bool is_training = call.flag("training_mode");
  Sizes axes = axes_from(2, x.dim());
  axes.insert(axes.begin(), 0);

  if (is_training) used = moments(x, axes);
  const Tensor scaled = normalized(x, used, epsilon).mul(channels(1)).add(channels(2));
  call.result(scaled.to(given.scalar_type()));

  if (!is_training) return;
  const double momentum = call.number("momentum", 0.9);
  const auto running = [&](std::size_t i, const Tensor& now) {
    const Tensor& before = call.input(i);
    call.result(raised(before).mul(momentum).add(now.reshape({-1}).mul(1 - momentum)).to(before.scalar_type()));
  };
  running(3, used.mean);
  running(4, used.variance);
}

void run_instance_normalization(Call& call) {
  const Tensor& given = call.input(0);
  const Tensor x = raised(given);
  call.require(x.dim() > 2, "its input must have a spatial axis");
  const Tensor plain = normalized(x, moments(x, axes_from(2, x.dim())), call.number("epsilon", 1e-5));
  const auto channels = [&](std::size_t i) { return over_channels(raised(call.input(i)), x.dim()); };
  call.result(plain.mul(channels(1)).add(channels(2)).to(given.scalar_type()));
}

// Scale and bias are one for each group before opset 21, one for each channel from then on.
void run_group_normalization(Call& call) {
  const Tensor& given = call.input(0);
  const std::int64_t groups = call.integer("num_groups");
  call.require(given.dim() >= 2 && groups > 0 && given.size(1) % groups == 0,
               "num_groups does not divide the channels");
  const Tensor x = raised(given).reshape({given.size(0), groups, -1});
  const Tensor plain = normalized(x, moments(x, {2}), call.number("epsilon", 1e-5)).reshape(given.sizes());
  const auto channels = [&](std::size_t i) {
    const Tensor vector = raised(call.input(i));
    const bool is_of_groups = call.opset() < 21 && vector.numel() == groups;
    return over_channels(is_of_groups ? vector.repeat_interleave(given.size(1) / groups) : vector, given.dim());
  };
  call.result(plain.mul(channels(1)).add(channels(2)).to(given.scalar_type()));
}

// ---------------------------------------------------------------- over the last axes

Sizes sizes_from(const Tensor& x, std::int64_t axis) { return {x.sizes().begin() + axis, x.sizes().end()}; }

bool is_whole(const std::optional<Tensor>& tensor, const Sizes& sizes) {
  return !tensor || tensor->sizes() == at::IntArrayRef(sizes);
}

void layer_normalization(Call& call, const Tensor& x, std::int64_t axis, std::size_t scale_input) {
  const Sizes sizes = sizes_from(x, axis);
  std::optional<Tensor> scale = call.find(scale_input);
  std::optional<Tensor> bias = call.find(scale_input + 1);
  const bool is_fitting = is_whole(scale, sizes) && is_whole(bias, sizes);
  const Tensor input = raised(x);
  auto [y, mean, inverse] = at::native_layer_norm(
      input, sizes, is_fitting && scale ? std::optional(raised(*scale)) : std::nullopt,
      is_fitting && bias ? std::optional(raised(*bias)) : std::nullopt, call.number("epsilon", 1e-5));
  if (!is_fitting) {
    if (scale) y = y.mul(raised(*scale));
    if (bias) y = y.add(raised(*bias));
  }
  call.result(y.to(x.scalar_type()));
  call.result(mean);
  call.result(inverse);
}

void run_layer_normalization(Call& call) {
  const Tensor& x = call.input(0);
  layer_normalization(call, x, call.axis(call.integer("axis", -1), x.dim()), 1);
}

struct RootMeanSquare {
  Tensor y;
  Tensor inverse;
};

RootMeanSquare root_mean_square(const Tensor& x, const Sizes& axes, const Tensor& scale, double epsilon) {
  const Tensor wide = raised(x);
  const Tensor inverse = wide.square().mean(axes, true).add(epsilon).rsqrt();
  return {wide.mul(inverse).mul(raised(scale)).to(x.scalar_type()), inverse};
}

void run_rms_normalization(Call& call) {
  const Tensor& x = call.input(0);
  const std::int64_t axis = call.axis(call.integer("axis", -1), x.dim());
  const RootMeanSquare result =
      root_mean_square(x, axes_from(axis, x.dim()), call.input(1), call.number("epsilon", 1e-5));
  call.result(result.y);
  call.result(result.inverse);  // an output of com.microsoft's SimplifiedLayerNormalization
}

// ---------------------------------------------------------------- com.microsoft: the sum of two inputs first

/// Rows are added to rows: the kernels broadcast the first axis alone.
Tensor sum_of_rows(Call& call) {
  const Tensor &x = call.input(0), &skip = call.input(1);
  call.require(skip.dim() >= 2 && skip.dim() <= x.dim() && skip.size(-1) == x.size(-1) && skip.size(-2) == x.size(-2),
               "the last two axes of input and skip differ");
  return raised(x).add(raised(skip));
}

void run_skip_layer_normalization(Call& call) {
  Tensor sum = sum_of_rows(call);
  if (call.has(4)) sum = sum.add(raised(call.input(4)));
  const c10::ScalarType type = call.input(0).scalar_type();
  layer_normalization(call, sum.to(type), sum.dim() - 1, 2);
  call.result(sum.to(type));
}

void run_skip_rms_normalization(Call& call) {
  Tensor sum = sum_of_rows(call);
  if (call.has(3)) sum = sum.add(raised(call.input(3)));
  const c10::ScalarType type = call.input(0).scalar_type();
  const RootMeanSquare result =
      root_mean_square(sum.to(type), {sum.dim() - 1}, call.input(2), call.number("epsilon", 1e-12));
  call.result(result.y);
  call.result(result.inverse);
  call.result(result.inverse);
  call.result(sum.to(type));
}

// ---------------------------------------------------------------- others

// Divided by a power of the squares summed over neighbouring channels.
void run_lrn(Call& call) {
  const Tensor& given = call.input(0);
  const Tensor x = raised(given);
  const std::int64_t size = call.integer("size");
  call.require(size > 0 && x.dim() >= 2, "size must be positive");
  const Tensor squares = x.square();
  Tensor sums = at::zeros_like(squares);
  for (std::int64_t c = 0; c < x.size(1); ++c) {
    const std::int64_t first = std::max<std::int64_t>(0, c - (size - 1) / 2);
    const std::int64_t last = std::min(x.size(1) - 1, c + size / 2);
    sums.select(1, c).add_(squares.narrow(1, first, last - first + 1).sum(1));
  }
  const double alpha = call.number("alpha", 1e-4) / static_cast<double>(size);
  const Tensor divisor = sums.mul(alpha).add(call.number("bias", 1.0)).pow(call.number("beta", 0.75));
  call.result(x.div(divisor).to(given.scalar_type()));
}

void run_lp_normalization(Call& call) {
  const Tensor& given = call.input(0);
  const Tensor x = raised(given);
  const std::int64_t axis = call.axis(call.integer("axis", -1), x.dim());
  const bool is_first = call.integer("p", 2) == 1;
  const Tensor norm = is_first ? x.abs().sum({axis}, true) : x.square().sum({axis}, true).sqrt();
  call.result(x.div(norm).masked_fill(norm.eq(0), 0).to(given.scalar_type()));
}

void run_mean_variance_normalization(Call& call) {
  const Tensor& given = call.input(0);
  const Tensor x = raised(given);
  const Sizes axes = call.axes(call.integers("axes", {0, 2, 3}), x.dim());
  const Moments of = moments(x, axes);
  call.result(x.sub(of.mean).div(of.variance.sqrt().add(1e-9)).to(given.scalar_type()));
}

}  // namespace

void populate_normalization(OperatorTable& table) {
  table.add("BatchNormalization", run_batch_normalization);
  table.add("InstanceNormalization", run_instance_normalization);
  table.add("GroupNormalization", run_group_normalization);
  table.add("LayerNormalization", run_layer_normalization);
  table.add({"RMSNormalization", "SimplifiedLayerNormalization"}, run_rms_normalization);
  table.add("com.microsoft::SkipLayerNormalization", run_skip_layer_normalization);
  table.add("com.microsoft::SkipSimplifiedLayerNormalization", run_skip_rms_normalization);
  table.add("LRN", run_lrn);
  table.add("LpNormalization", run_lp_normalization);
  table.add("MeanVarianceNormalization", run_mean_variance_normalization);
}

}  // namespace exportguard::evaluator
