// Resize, Upsample, AffineGrid, GridSample. A resize is one product with a matrix of weights for each axis, or takes
// the nearest elements along it.
#include <ATen/TensorOperators.h>
#include <ATen/ops/affine_grid_generator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/grid_sampler.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;

struct Settings {
  std::string mode;
  std::string coordinates;
  std::string nearest;
  double cubic;
  bool excludes_outside;
  bool antialias;
};

struct Axis {
  std::int64_t in;
  std::int64_t out;
  double scale;  ///< as given, or out / in
  double start;  ///< region of interest, as parts of the axis
  double end;
};

// Where in the input the output's element `i` lies, in the mode that the operator names.
double source(const Settings& settings, const Axis& axis, std::int64_t i) {
  const auto x = static_cast<double>(i);
  const auto in = static_cast<double>(axis.in);
  const auto out = static_cast<double>(axis.out);
  if (settings.coordinates == "asymmetric") return x / axis.scale;
  if (settings.coordinates == "align_corners") return axis.out == 1 ? 0 : x * (in - 1) / (out - 1);
  if (settings.coordinates == "pytorch_half_pixel") return axis.out == 1 ? 0.0 : (x + 0.5) / axis.scale - 0.5;
  if (settings.coordinates == "half_pixel_symmetric") {
    const double adjustment = out / (axis.scale * in);
    return in / 2 * (1 - adjustment) + (x + 0.5) / axis.scale - 0.5;
  }
  if (settings.coordinates == "tf_half_pixel_for_nn") return (x + 0.5) / axis.scale;
  if (settings.coordinates != "tf_crop_and_resize") return (x + 0.5) / axis.scale - 0.5;
  if (axis.out == 1) return 0.5 * (axis.start + axis.end) * (in - 1);
  return axis.start * (in - 1) + x * (axis.end - axis.start) * (in - 1) / (out - 1);
}

double rounded(const std::string& mode, double x) {
  if (mode == "floor") return std::floor(x);
  if (mode == "ceil") return std::ceil(x);
  if (mode == "round_prefer_ceil") return std::floor(x + 0.5);
  return std::ceil(x - 0.5);
}

double cubic(double a, double distance) {
  const double d = std::abs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

double weight(const Settings& settings, double distance) {
  return settings.mode == "linear" ? std::max(0.0, 1 - std::abs(distance)) : cubic(settings.cubic, distance);
}

// The weights of the input's elements for one output element, at the position x. Antialiasing widens the filter when
// the axis shrinks. What lies outside counts as the element at the border, or not at all.
void fill_row(const Settings& settings, const Axis& axis, double x, double* row) {
  const double shrinking = settings.antialias ? std::min(axis.scale, 1.0) : 1.0;
  const double reach = (settings.mode == "linear" ? 1.0 : 2.0) / shrinking;
  double sum = 0;
  const auto first = static_cast<std::int64_t>(std::floor(x - reach)) + (settings.antialias ? 0 : 1);
  const auto last = static_cast<std::int64_t>(std::ceil(x + reach));
  for (std::int64_t at = first; at <= last; ++at) {
    const bool is_outside = at < 0 || at >= axis.in;
    if (is_outside && settings.excludes_outside) continue;
    const double w = weight(settings, (x - static_cast<double>(at)) * shrinking);
    row[std::clamp<std::int64_t>(at, 0, axis.in - 1)] += w;
    sum += w;
  }

  if (sum == 0 || sum == 1) return;
  for (std::int64_t i = 0; i < axis.in; ++i) row[i] /= sum;
}

Tensor weights(const Settings& settings, const Axis& axis) {
  const Tensor result = at::empty({axis.out, axis.in}, at::kDouble).zero_();
  auto* row = result.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < axis.out; ++i) fill_row(settings, axis, source(settings, axis, i), row + i * axis.in);
  return result;
}

// Sums of columns by the rows of weights. An element without a weight has no part in a sum, not as NaN or infinity.
Tensor weighted(const Tensor& matrix, const Tensor& columns) {
  const Tensor is_finite = columns.isfinite();
  if (is_finite.all().item<bool>()) return at::matmul(matrix, columns);
  const auto parts = [&](const Tensor& has_weight, const Tensor& is_there) {
    return at::matmul(has_weight.to(columns.options()), is_there.to(columns.options()));
  };
  const Tensor above = parts(matrix.gt(0), columns.isposinf()) + parts(matrix.lt(0), columns.isneginf());
  const Tensor below = parts(matrix.gt(0), columns.isneginf()) + parts(matrix.lt(0), columns.isposinf());
  const Tensor unknown = parts(matrix.ne(0), columns.isnan()) + above * below;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return at::matmul(matrix, columns.masked_fill(is_finite.logical_not(), 0))
      .masked_fill(above.gt(0), kInfinity)
      .masked_fill(below.gt(0), -kInfinity)
      .masked_fill(unknown.gt(0), std::numeric_limits<double>::quiet_NaN());
}

Tensor along(const Tensor& x, std::int64_t axis, const Tensor& matrix) {
  return weighted(matrix.to(x.options()), x.movedim(axis, 0).reshape({x.size(axis), -1}))
      .reshape([&] {
        std::vector<std::int64_t> sizes = x.movedim(axis, 0).sizes().vec();
        sizes.front() = matrix.size(0);
        return sizes;
      }())
      .movedim(0, axis);
}

// The element of the input that each of the output is a copy of.
Tensor nearest_along(const Tensor& x, std::int64_t axis, const Settings& settings, const Axis& of) {
  const Tensor places = at::empty({of.out}, at::kLong);
  for (std::int64_t i = 0; i < of.out; ++i) {
    const auto at = static_cast<std::int64_t>(rounded(settings.nearest, source(settings, of, i)));
    places.mutable_data_ptr<std::int64_t>()[i] = std::clamp<std::int64_t>(at, 0, of.in - 1);
  }
  return x.index_select(axis, places.to(x.device()));
}

// Elements of an output whose place is outside of the input get the extrapolation value.
Tensor extrapolated(const Call& call, const Settings& settings, const Tensor& x, std::int64_t axis, const Axis& of) {
  if (settings.coordinates != "tf_crop_and_resize") return x;
  const Tensor is_outside = at::empty({of.out}, at::kBool);
  for (std::int64_t i = 0; i < of.out; ++i) {
    const double at = source(settings, of, i);
    is_outside.mutable_data_ptr<bool>()[i] = at < 0 || at > static_cast<double>(of.in - 1);
  }
  std::vector<std::int64_t> view(static_cast<std::size_t>(x.dim()), 1);
  view[static_cast<std::size_t>(axis)] = of.out;
  return x.masked_fill(is_outside.to(x.device()).reshape(view), call.number("extrapolation_value", 0.0));
}

Settings settings_of(const Call& call) {
  Settings settings{call.text("mode", "nearest"),
                    call.text("coordinate_transformation_mode", call.opset() < 11 ? "asymmetric" : "half_pixel"),
                    call.text("nearest_mode", call.opset() < 11 ? "floor" : "round_prefer_floor"),
                    call.number("cubic_coeff_a", -0.75),
                    call.flag("exclude_outside"),
                    call.flag("antialias")};
  const bool is_known = settings.mode == "nearest" || settings.mode == "linear" || settings.mode == "cubic";
  call.require(is_known, "mode must be nearest, linear or cubic");
  return settings;
}

std::vector<double> numbers(const Call& call, std::size_t input) {
  const Tensor dense = call.input(input).to(at::kCPU, at::kDouble).contiguous();
  const auto* first = dense.const_data_ptr<double>();
  return {first, first + dense.numel()};
}

// The least or largest scale for all axes, so that the picture keeps its proportions.
void keep_aspect_ratio(const Call& call, const Tensor& x, const std::vector<std::int64_t>& axes,
                       std::vector<Axis>& of) {
  const std::string policy = call.text("keep_aspect_ratio_policy", "stretch");
  if (policy == "stretch") return;
  double scale = of.front().scale;
  for (const Axis& axis : of)
    scale = policy == "not_larger" ? std::min(scale, axis.scale) : std::max(scale, axis.scale);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    of[i].scale = scale;
    of[i].out = static_cast<std::int64_t>(std::floor(scale * static_cast<double>(x.size(axes[i])) + 0.5));
  }
}

struct Inputs {
  std::size_t roi;
  std::size_t scales;
  std::size_t sizes;
};

std::vector<Axis> axes_of(const Call& call, const Tensor& x, const std::vector<std::int64_t>& axes, const Inputs& at) {
  std::vector<Axis> result;
  const bool has_sizes = call.has(at.sizes) && call.input(at.sizes).numel() > 0;
  const std::vector<std::int64_t> sizes = has_sizes ? call.ints(at.sizes) : std::vector<std::int64_t>();
  const std::vector<double> scales = !has_sizes ? numbers(call, at.scales) : std::vector<double>();
  const bool has_roi = call.has(at.roi) && call.input(at.roi).numel() > 0;
  const std::vector<double> roi = has_roi ? numbers(call, at.roi) : std::vector<double>();

  call.require((has_sizes ? sizes.size() : scales.size()) == axes.size(), "it needs a scale or size for each axis");
  call.require(!has_roi || roi.size() == 2 * axes.size(), "roi must have two numbers for each axis");

  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t in = x.size(axes[i]);
    const double start = has_roi ? roi[i] : 0;
    const double end = has_roi ? roi[i + axes.size()] : 1;
    const bool is_cropped = call.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize";
    const double part = is_cropped ? end - start : 1;
    const double scale = has_sizes ? static_cast<double>(sizes[i]) / static_cast<double>(in) : scales[i];
    call.require(in > 0 && scale > 0 && scale < 1e9, "an axis cannot be resized to or from nothing");
    const auto out =
        has_sizes ? sizes[i] : static_cast<std::int64_t>(std::floor(static_cast<double>(in) * part * scale));
    result.push_back({in, out, scale, start, end});
  }

  if (has_sizes) keep_aspect_ratio(call, x, axes, result);
  return result;
}

void resize(Call& call, const Inputs& inputs) {
  const Tensor& given = call.input(0);
  const Settings settings = settings_of(call);
  std::vector<std::int64_t> axes(static_cast<std::size_t>(given.dim()));
  std::iota(axes.begin(), axes.end(), 0);
  axes = call.axes(call.integers("axes", std::move(axes)), given.dim());

  const bool is_real = at::isFloatingType(given.scalar_type());
  const bool is_nearest = settings.mode == "nearest";
  Tensor x = is_real ? raised(given) : (is_nearest ? widened(given) : widened(given).to(at::kDouble));
  const std::vector<Axis> of = axes_of(call, x, axes, inputs);
  std::vector<std::int64_t> sizes = x.sizes().vec();
  for (std::size_t i = 0; i < axes.size(); ++i) sizes[static_cast<std::size_t>(axes[i])] = of[i].out;
  call.require_room(sizes);

  for (std::size_t i = 0; i < axes.size(); ++i) {
    const bool is_same = of[i].in == of[i].out && of[i].scale == 1 && settings.coordinates != "tf_crop_and_resize";
    if (is_same) continue;
    x = is_nearest ? nearest_along(x, axes[i], settings, of[i]) : along(x, axes[i], weights(settings, of[i]));
  }
  for (std::size_t i = 0; i < axes.size(); ++i) x = extrapolated(call, settings, x, axes[i], of[i]);

  if (!is_real && !is_nearest) x = x.round();
  call.result(is_nearest && !is_real ? narrowed(x, given.scalar_type()) : x.to(given.scalar_type()));
}

void run_resize(Call& call) { resize(call, call.opset() < 11 ? Inputs{9, 1, 9} : Inputs{1, 2, 3}); }
void run_upsample(Call& call) { resize(call, {9, 1, 9}); }

// ---------------------------------------------------------------- grids

void run_affine_grid(Call& call) {
  call.result(in_float(call.input(0), [&](const Tensor& theta) {
    return at::affine_grid_generator(theta, call.ints(1), call.flag("align_corners"));
  }));
}

void run_grid_sample(Call& call) {
  const std::string mode = call.text("mode", "linear");
  const std::string padding = call.text("padding_mode", "zeros");
  const std::int64_t how = mode == "nearest" ? 1 : (mode == "cubic" || mode == "bicubic" ? 2 : 0);
  const std::int64_t outside = padding == "border" ? 1 : (padding == "reflection" ? 2 : 0);
  const Tensor x = raised(call.input(0));
  const Tensor grid = call.input(1).to(x.scalar_type());
  call.result(at::grid_sampler(x, grid, how, outside, call.flag("align_corners")).to(call.input(0).scalar_type()));
}

}  // namespace

void populate_resizing(OperatorTable& table) {
  table.add("Resize", run_resize);
  table.add("Upsample", run_upsample);
  table.add("AffineGrid", run_affine_grid);
  table.add("GridSample", run_grid_sample);
}

}  // namespace exportguard::evaluator
