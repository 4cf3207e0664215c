#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/interpolation.h"
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
  for (std::size_t i = first; i < first + spatial; ++i)
    target.factors.push_back(ctx.has(i) ? std::optional(ctx.number(i)) : std::nullopt);
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

/// Whether the sizes asked for are those that the factors make, as far as both are known, and all axes have a factor or
/// none. The overloads without a name take any sizes and factors; what is given of these sets the positions then.
bool has_sizes_of_factors(LoweringContext& ctx, const Target& target) {
  const bool has_some = std::ranges::any_of(target.factors, [](const auto& factor) { return factor.has_value(); });
  if (has_some && !has_factors(target)) return false;
  for (std::size_t i = 0; i < target.spatial(); ++i) {
    const auto from = size_of(ctx, target.x, static_cast<std::int64_t>(i) + 2).number();
    const auto to = target.sizes[i].number();
    const auto& factor = target.factors[i];
    if (from && to && factor && static_cast<std::int64_t>(static_cast<double>(*from) * *factor) != *to) return false;
  }
  return true;
}

// ------------------------------------------------------------------------------------------------ nearest

enum class Rounding { kFloor, kHalfPixel };

/// A factor that is a power of two maps every position exactly, whoever divides.
bool is_power_of_two(const std::optional<double>& factor) {
  return factor && *factor >= 1 && std::exp2(std::round(std::log2(*factor))) == *factor;
}

/// How far apart the source elements of two neighbours lie.
Value* nearest_step(LoweringContext& ctx, const Size& from, const Size& to, std::optional<double> factor) {
  if (factor && *factor > 0) return ctx.constant(static_cast<double>(static_cast<float>(1 / *factor)), DType::kFloat32);
  return ctx.op("Div",
                {ctx.cast(as_scalar(ctx, from), DType::kFloat32), ctx.cast(as_scalar(ctx, to), DType::kFloat32)});
}

/// Of an image torch leaves an axis whose size stays, and doubles each element where the size doubles, whatever factor
/// is given (`nearest_idx` in UpSample.h, torch 2.11 to 2.13); of volumes it does so in memory that has channels last.
Value* step_of_pictures(LoweringContext& ctx, const Size& from, const Size& to, Value* step) {
  Value* before = as_scalar(ctx, from);
  Value* after = as_scalar(ctx, to);
  const auto is_equal = [&](Value* size) { return ctx.op("Equal", {after, size}); };
  step = ctx.where(is_equal(ctx.op("Add", {before, before})), ctx.constant(0.5, DType::kFloat32), step);
  return ctx.where(is_equal(before), ctx.constant(1.0, DType::kFloat32), step);
}

/// The index of the source element for each of the result's, in torch's own float32 arithmetic: Resize rounds otherwise
/// where a position falls on the border between two elements.
Value* nearest_indices(LoweringContext& ctx, const Size& from, const Size& to, Value* step, Rounding rounding) {
  Value* count = as_scalar(ctx, from);
  Value* position = ctx.cast(range(ctx, to), DType::kFloat32);
  if (rounding == Rounding::kHalfPixel) position = ctx.op("Add", {position, ctx.constant(0.5, DType::kFloat32)});
  Value* index = ctx.cast(ctx.op("Floor", {ctx.op("Mul", {position, step})}), DType::kInt64);
  return ctx.op("Min", {index, ctx.op("Sub", {count, ctx.constant(1, DType::kInt64)})});
}

Value* gather_nearest(LoweringContext& ctx, const Target& target, Rounding rounding) {
  Value* y = target.x;
  const bool has_exceptions = target.spatial() == 2 && rounding == Rounding::kFloor;
  for (std::size_t i = 0; i < target.spatial(); ++i) {
    const auto axis = static_cast<std::int64_t>(i) + 2;
    const Size from = size_of(ctx, target.x, axis);
    const bool is_same = from.number() && from.number() == target.sizes[i].number();
    const auto& factor = target.factors[i];
    if (is_same && (!factor || factor == 1 || has_exceptions)) continue;
    Value* step = nearest_step(ctx, from, target.sizes[i], factor);
    if (factor && has_exceptions) step = step_of_pictures(ctx, from, target.sizes[i], step);
    y = ctx.gather(y, nearest_indices(ctx, from, target.sizes[i], step, rounding), axis);
  }
  return y;
}

// ------------------------------------------------------------------------------------------------ Resize

/// The factor as float32, rounded up: floor(size * factor) in float32 must not fall below torch's in double.
float rounded_up(double factor) {
  const auto narrow = static_cast<float>(factor);
  return narrow < factor ? std::nextafter(narrow, std::numeric_limits<float>::infinity()) : narrow;
}

/// Whether an axis keeps its size by the factor, whatever that is: nothing where the size at run time decides.
std::optional<bool> keeps_size(const Size& from, const Size& to, double factor) {
  if (from.number() && to.number()) return *from.number() == *to.number();
  if (factor < 1 || factor >= 2) return false;
  return std::nullopt;
}

/// What becomes of an axis that a factor leaves as long as it is.
enum class KeptAxis { kStays, kMoves };

/// The factor of a spatial axis; nothing where the size at run time decides.
std::optional<float> known_factor(LoweringContext& ctx, const Target& target, std::size_t i, KeptAxis kept) {
  const Size from = size_of(ctx, target.x, static_cast<std::int64_t>(i) + 2);
  const double factor = *target.factors[i];
  const std::optional<bool> keeps = kept == KeptAxis::kMoves ? false : keeps_size(from, target.sizes[i], factor);
  return keeps ? std::optional(*keeps ? 1.0F : rounded_up(factor)) : std::nullopt;
}

Value* float_vector(LoweringContext& ctx, const std::vector<float>& numbers) {
  return ctx.constant(ir::Tensor(at::tensor(numbers)));
}

/// float32[1]
Value* factor_by_size(LoweringContext& ctx, const Target& target, std::size_t i) {
  Value* from = as_dim(ctx, size_of(ctx, target.x, static_cast<std::int64_t>(i) + 2));
  Value* keeps = ctx.op("Equal", {from, as_dim(ctx, target.sizes[i])});
  return ctx.where(keeps, float_vector(ctx, {1}), float_vector(ctx, {rounded_up(*target.factors[i])}));
}

/// Batch and channels keep their sizes.
Value* factors_with_batch(LoweringContext& ctx, const Target& target, KeptAxis kept) {
  std::vector<Value*> parts;
  std::vector<float> known = {1, 1};
  for (std::size_t i = 0; i < target.spatial(); ++i) {
    if (const auto factor = known_factor(ctx, target, i, kept)) {
      known.push_back(*factor);
      continue;
    }
    if (!known.empty()) parts.push_back(float_vector(ctx, std::exchange(known, {})));
    parts.push_back(factor_by_size(ctx, target, i));
  }
  if (!known.empty()) parts.push_back(float_vector(ctx, known));
  return ctx.concat(parts, 0);
}

/// Factors that the model gave set the positions; else the ratio of the sizes does.
Value* resize(LoweringContext& ctx, const Target& target, KeptAxis kept, ir::AttributeList attributes) {
  Value* x = is_floating(target.x->dtype()) ? target.x : ctx.cast(target.x, DType::kFloat32);
  x = ctx.cast(x, kernel_dtype(ctx, "Resize", x->dtype()));
  if (has_factors(target))
    return ctx.op("Resize", {x, nullptr, factors_with_batch(ctx, target, kept)}, std::move(attributes));
  std::vector<Size> sizes = {size_of(ctx, x, 0), size_of(ctx, x, 1)};
  sizes.insert(sizes.end(), target.sizes.begin(), target.sizes.end());
  return ctx.op("Resize", {x, nullptr, nullptr, ctx.concat_sizes(sizes)}, std::move(attributes));
}

Value* nearest(LoweringContext& ctx, const Target& target, Rounding rounding) {
  const bool is_exact = has_factors(target) && std::ranges::all_of(target.factors, is_power_of_two) &&
                        has_sizes_of_factors(ctx, target) && has_kernel(ctx.target(), "Resize", target.x->dtype());
  if (!is_exact) return gather_nearest(ctx, target, rounding);
  return resize(ctx, target, KeptAxis::kStays,
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

/// A Resize that keeps every size does nothing in some runtimes, but plain cubic kernels move by the factor.
bool may_be_left(LoweringContext& ctx, const Target& target, Filter filter) {
  if (filter != Filter::kPlain || !has_factors(target)) return false;
  for (std::size_t i = 0; i < target.spatial(); ++i) {
    const Size from = size_of(ctx, target.x, static_cast<std::int64_t>(i) + 2);
    const bool grows = keeps_size(from, target.sizes[i], *target.factors[i]) == false;
    if (grows || *target.factors[i] == 1) return false;
  }
  return true;
}

/// A signal as a picture of one row: a linear kernel of volumes, which three axes are to some, adds what it reads of
/// the next sample and channel times zero, which is NaN where that is infinite or NaN.
Target as_picture(LoweringContext& ctx, Target target) {
  target.x = ctx.unsqueeze(target.x, {2});
  target.sizes.insert(target.sizes.begin(), Size(1));
  if (has_factors(target)) target.factors.insert(target.factors.begin(), 1.0);
  return target;
}

/// Axis by axis, the last one first, as torch goes.
Value* interpolated_in_double(LoweringContext& ctx, const Target& target, const InterpolationOptions& options) {
  Value* y = ctx.cast(target.x, DType::kFloat64);
  for (std::size_t i = target.spatial(); i-- > 0;)
    y = interpolated(ctx, y, {static_cast<std::int64_t>(i) + 2, target.sizes[i], target.factors[i]}, options);
  return y;
}

void lower_interpolation(LoweringContext& ctx, const Target& target, std::string_view mode, Filter filter) {
  const bool is_of_bytes = target.x->dtype() == DType::kUint8;  // torch has no kernel for other integers
  const bool is_antialiased = filter == Filter::kAntialias;
  if (is_of_bytes || lacks_double(ctx, "Resize", target.x->dtype()) || (is_antialiased && ctx.flag(2)) ||
      (mode == "cubic" && may_be_left(ctx, target, filter)) || !has_sizes_of_factors(ctx, target)) {
    const Kernel kernel = mode == "linear" ? Kernel::kLinear : Kernel::kCubic;
    return ctx.result(interpolated_in_double(ctx, target, {kernel, ctx.flag(2), is_antialiased, is_of_bytes}));
  }
  // But for plain cubic kernels torch leaves an axis that keeps its size, whatever the factor.
  const KeptAxis kept = mode == "cubic" && filter == Filter::kPlain ? KeptAxis::kMoves : KeptAxis::kStays;
  const bool is_signal = target.spatial() == 1;
  Value* y = resize(ctx, is_signal ? as_picture(ctx, target) : target, kept, interpolation(ctx, mode, filter));
  ctx.result(is_signal ? ctx.squeeze(y, {2}) : y);
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
