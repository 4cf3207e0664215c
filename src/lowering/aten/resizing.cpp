#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/kernels.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

/// Sizes of the spatial axes (the last ones) asked for, and the factors that the model gave, if it did.
struct Target {
  Value* x;
  std::vector<Size> sizes;
  std::vector<std::optional<double>> factors;  ///< one for each spatial axis

  std::size_t spatial() const { return sizes.size(); }
};

/// `(input, output_size, ..., scale, scale, ...)`: the overloads without a name; the scales end the arguments.
Target sized_target(LoweringContext& ctx) {
  const std::size_t spatial = ctx.rank(ctx.input(0)) - 2;
  Target target = {ctx.input(0), ctx.sizes(1), {}};
  const std::size_t first = ctx.argument_count() - spatial;
  for (std::size_t i = 0; i < spatial; ++i) target.factors.push_back(ctx.find_number(first + i));
  return target;
}

/// floor(size * factor) in double, as torch has it.
Size scaled_size(LoweringContext& ctx, const Size& size, double factor) {
  if (size.number()) return static_cast<std::int64_t>(static_cast<double>(*size.number()) * factor);
  Value* product = ctx.op("Mul", {ctx.cast(size.value(), DType::kFloat64), ctx.constant(factor, DType::kFloat64)});
  return Size(ctx.cast(product, DType::kInt64));
}

/// `(input, output_size?, ..., scale_factors?)`: the `vec` overloads.
Target vec_target(LoweringContext& ctx) {
  const std::size_t spatial = ctx.rank(ctx.input(0)) - 2;
  Target target = {ctx.input(0), {}, std::vector<std::optional<double>>(spatial)};
  if (ctx.has(1)) {
    target.sizes = ctx.sizes(1);
    return target;
  }
  const std::vector<double> factors = ctx.numbers(ctx.argument_count() - 1);
  std::ranges::copy(factors, target.factors.begin());
  for (std::size_t i = 0; i < spatial; ++i) {
    target.sizes.push_back(scaled_size(ctx, size_of(ctx, target.x, static_cast<std::int64_t>(i) + 2), factors.at(i)));
  }
  return target;
}

bool has_factors(const Target& target) {
  return std::ranges::all_of(target.factors, [](const auto& factor) { return factor.has_value(); });
}

// ------------------------------------------------------------------------------------------------ nearest

enum class Rounding { kFloor, kHalfPixel };

/// A factor that is a power of two maps every position exactly, whoever divides.
bool is_power_of_two(const std::optional<double>& factor) {
  return factor && *factor >= 1 && std::exp2(std::round(std::log2(*factor))) == *factor;
}

/// The index of the source element for each of the result's, in torch's own float32 arithmetic: Resize rounds otherwise
/// where a position falls on the border between two elements.
Value* nearest_indices(LoweringContext& ctx, const Size& from, const Size& to, std::optional<double> factor,
                       Rounding rounding) {
  Value* count = as_scalar(ctx, from);
  Value* step = nullptr;
  if (factor && *factor > 0) {
    step = ctx.constant(static_cast<double>(static_cast<float>(1 / *factor)), DType::kFloat32);
  } else {
    step = ctx.op("Div", {ctx.cast(count, DType::kFloat32), ctx.cast(as_scalar(ctx, to), DType::kFloat32)});
  }
  Value* position = ctx.cast(range(ctx, to), DType::kFloat32);
  if (rounding == Rounding::kHalfPixel) position = ctx.op("Add", {position, ctx.constant(0.5, DType::kFloat32)});
  Value* index = ctx.cast(ctx.op("Floor", {ctx.op("Mul", {position, step})}), DType::kInt64);
  return ctx.op("Min", {index, ctx.op("Sub", {count, ctx.constant(1, DType::kInt64)})});
}

Value* gather_nearest(LoweringContext& ctx, const Target& target, Rounding rounding) {
  Value* y = target.x;
  for (std::size_t i = 0; i < target.spatial(); ++i) {
    const auto axis = static_cast<std::int64_t>(i) + 2;
    const Size from = size_of(ctx, target.x, axis);
    const bool is_same = from.number() && from.number() == target.sizes[i].number();
    if (!is_same) y = ctx.gather(y, nearest_indices(ctx, from, target.sizes[i], target.factors[i], rounding), axis);
  }
  return y;
}

// ------------------------------------------------------------------------------------------------ Resize

/// The factor as float32, rounded up: floor(size * factor) in float32 must not fall below torch's in double.
float rounded_up(double factor) {
  const auto narrow = static_cast<float>(factor);
  return narrow < factor ? std::nextafter(narrow, std::numeric_limits<float>::infinity()) : narrow;
}

/// Batch and channels keep their sizes.
Value* factors_with_batch(LoweringContext& ctx, const Target& target) {
  std::vector<float> factors = {1, 1};
  for (const auto& factor : target.factors) factors.push_back(rounded_up(*factor));
  return ctx.constant(ir::Tensor(at::tensor(factors)));
}

/// Factors that the model gave set the positions; else the ratio of the sizes does.
Value* resize(LoweringContext& ctx, const Target& target, ir::AttributeList attributes) {
  Value* x = is_floating(target.x->dtype()) ? target.x : ctx.cast(target.x, DType::kFloat32);
  x = ctx.cast(x, kernel_dtype(ctx, "Resize", x->dtype()));
  if (has_factors(target))
    return ctx.op("Resize", {x, nullptr, factors_with_batch(ctx, target)}, std::move(attributes));
  std::vector<Size> sizes = {size_of(ctx, x, 0), size_of(ctx, x, 1)};
  sizes.insert(sizes.end(), target.sizes.begin(), target.sizes.end());
  return ctx.op("Resize", {x, nullptr, nullptr, ctx.concat_sizes(sizes)}, std::move(attributes));
}

Value* nearest(LoweringContext& ctx, const Target& target, Rounding rounding) {
  const bool is_exact = has_factors(target) && std::ranges::all_of(target.factors, is_power_of_two) &&
                        kernel_dtype(ctx, "Resize", target.x->dtype()) == target.x->dtype();
  if (!is_exact) return gather_nearest(ctx, target, rounding);
  return resize(ctx, target,
                {{"mode", std::string("nearest")},
                 {"coordinate_transformation_mode", std::string("asymmetric")},
                 {"nearest_mode", std::string("floor")}});
}

void lower_nearest(LoweringContext& ctx) { ctx.result(nearest(ctx, sized_target(ctx), Rounding::kFloor)); }
void lower_nearest_vec(LoweringContext& ctx) { ctx.result(nearest(ctx, vec_target(ctx), Rounding::kFloor)); }
void lower_nearest_exact(LoweringContext& ctx) { ctx.result(nearest(ctx, sized_target(ctx), Rounding::kHalfPixel)); }
void lower_nearest_exact_vec(LoweringContext& ctx) { ctx.result(nearest(ctx, vec_target(ctx), Rounding::kHalfPixel)); }

// ------------------------------------------------------------------------------------------------ linear and cubic

enum class Filter { kPlain, kAntialias };

/// The argument `align_corners` is the third of every overload.
std::vector<ir::NamedAttribute> interpolation(LoweringContext& ctx, std::string_view mode, Filter filter) {
  const bool aligns = ctx.flag(2);
  ctx.require(!aligns || filter == Filter::kPlain, "antialias=True with align_corners=True has no ONNX form");
  std::vector<ir::NamedAttribute> attributes;
  attributes.emplace_back("mode", std::string(mode));
  attributes.emplace_back("coordinate_transformation_mode", std::string(aligns ? "align_corners" : "half_pixel"));
  if (mode == "cubic") attributes.emplace_back("cubic_coeff_a", filter == Filter::kAntialias ? -0.5 : -0.75);
  if (filter == Filter::kAntialias) {
    attributes.emplace_back("antialias", std::int64_t{1});
    attributes.emplace_back("exclude_outside", std::int64_t{1});
  }
  return attributes;
}

/// Integers are interpolated as floats, rounded and kept within their range.
Value* in_range(LoweringContext& ctx, Value* y, DType dtype) {
  if (is_floating(dtype)) return y;
  Value* rounded = ctx.op("Round", {y});
  if (dtype != DType::kUint8) return rounded;
  return ctx.op("Clip", {rounded, ctx.number_like(0, y), ctx.number_like(255, y)});
}

void lower_interpolation(LoweringContext& ctx, const Target& target, std::string_view mode, Filter filter) {
  ctx.result(in_range(ctx, resize(ctx, target, interpolation(ctx, mode, filter)), target.x->dtype()));
}

void lower_linear(LoweringContext& ctx) { lower_interpolation(ctx, sized_target(ctx), "linear", Filter::kPlain); }
void lower_linear_vec(LoweringContext& ctx) { lower_interpolation(ctx, vec_target(ctx), "linear", Filter::kPlain); }
void lower_cubic(LoweringContext& ctx) { lower_interpolation(ctx, sized_target(ctx), "cubic", Filter::kPlain); }
void lower_cubic_vec(LoweringContext& ctx) { lower_interpolation(ctx, vec_target(ctx), "cubic", Filter::kPlain); }
void lower_linear_aa(LoweringContext& ctx) {
  lower_interpolation(ctx, sized_target(ctx), "linear", Filter::kAntialias);
}
void lower_linear_aa_vec(LoweringContext& ctx) {
  lower_interpolation(ctx, vec_target(ctx), "linear", Filter::kAntialias);
}
void lower_cubic_aa(LoweringContext& ctx) { lower_interpolation(ctx, sized_target(ctx), "cubic", Filter::kAntialias); }
void lower_cubic_aa_vec(LoweringContext& ctx) {
  lower_interpolation(ctx, vec_target(ctx), "cubic", Filter::kAntialias);
}

}  // namespace

void populate_resizing(LoweringTable& table) {
  table.add({"aten.upsample_nearest1d.default", "aten.upsample_nearest2d.default", "aten.upsample_nearest3d.default"},
            lower_nearest);
  table.add({"aten.upsample_nearest1d.vec", "aten.upsample_nearest2d.vec", "aten.upsample_nearest3d.vec"},
            lower_nearest_vec);
  table.add({"aten._upsample_nearest_exact1d.default", "aten._upsample_nearest_exact2d.default",
             "aten._upsample_nearest_exact3d.default"},
            lower_nearest_exact);
  table.add({"aten._upsample_nearest_exact1d.vec", "aten._upsample_nearest_exact2d.vec",
             "aten._upsample_nearest_exact3d.vec"},
            lower_nearest_exact_vec);

  table.add({"aten.upsample_linear1d.default", "aten.upsample_bilinear2d.default", "aten.upsample_trilinear3d.default"},
            lower_linear);
  table.add({"aten.upsample_linear1d.vec", "aten.upsample_bilinear2d.vec", "aten.upsample_trilinear3d.vec"},
            lower_linear_vec);

  table.add("aten.upsample_bicubic2d.default", lower_cubic);
  table.add("aten.upsample_bicubic2d.vec", lower_cubic_vec);
  table.add("aten._upsample_bilinear2d_aa.default", lower_linear_aa);
  table.add("aten._upsample_bilinear2d_aa.vec", lower_linear_aa_vec);
  table.add("aten._upsample_bicubic2d_aa.default", lower_cubic_aa);
  table.add("aten._upsample_bicubic2d_aa.vec", lower_cubic_aa_vec);
}

}  // namespace exportguard::lowering
