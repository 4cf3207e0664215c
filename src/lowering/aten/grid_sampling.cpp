#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/contraction.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

/// GridSample was for images alone until opset 20, which renamed the modes as well.
std::string sampling_mode(LoweringContext& ctx, std::int64_t mode) {
  static constexpr std::array<const char*, 3> kOld = {"bilinear", "nearest", "bicubic"};
  static constexpr std::array<const char*, 3> kNew = {"linear", "nearest", "cubic"};
  ctx.require(mode >= 0 && mode < 3, "the interpolation mode must be 0, 1 or 2, got " + std::to_string(mode));
  return (ctx.opset() >= 20 ? kNew : kOld).at(static_cast<std::size_t>(mode));
}

enum class Outside : std::uint8_t { kZeros, kBorder, kReflection };

/// How a position that is no finite number is sampled. ONNX leaves it open; torch's kernels for the CPU
/// (GridSamplerKernel for images, GridSampler for volumes, the same in torch 2.11 to 2.13) have these rules.
struct Sampling {
  bool is_volume;
  std::int64_t mode;  ///< 0: linear, 1: nearest, 2: cubic
  Outside outside;

  bool gives_nan() const { return !is_volume && (mode == 2 || (mode == 0 && outside == Outside::kZeros)); }
  bool gives_zero() const { return !gives_nan() && outside == Outside::kZeros; }
};

/// The grid with a position for each coordinate that has none.
Value* with_positions(LoweringContext& ctx, Value* grid, const Sampling& sampling) {
  const auto number = [&](double value) { return ctx.number_like(value, grid); };
  const double end = sampling.is_volume ? 1 : -1;
  if (sampling.outside != Outside::kBorder || sampling.gives_nan()) {
    Value* is_finite = ctx.op("Equal", {ctx.op("Sub", {grid, grid}), number(0)});
    return ctx.where(is_finite, grid, number(sampling.outside == Outside::kReflection ? end : 0));
  }
  // Everything beyond the ends is sampled at them.
  Value* clipped = ctx.op("Clip", {grid, number(-4), number(4)});
  return ctx.where(ctx.op("IsNaN", {grid}), number(4 * end), clipped);
}

/// [batch, 1, …], true where a coordinate is NaN or infinite.
Value* is_nowhere(LoweringContext& ctx, Value* grid) {
  const auto last = static_cast<std::int64_t>(ctx.rank(grid)) - 1;
  Value* sums = ctx.reduce("ReduceSum", ctx.op("Sub", {grid, grid}), {last}, false);
  return ctx.unsqueeze(ctx.op("IsNaN", {sums}), {1});
}

/// Positions in a float of 16 bits, in elements, as torch comes to them: it rounds each step, so that a position lies
/// as much as several elements beside the exact one. The kernels of torch 2.11 to 2.13 for images and for volumes take
/// other steps.
struct NarrowPositions {
  LoweringContext& ctx;
  DType dtype;
  bool is_volume;
  bool aligns;   ///< -1 and 1 are the middles of the elements at the ends, not the ends themselves
  Value* sizes;  ///< float32, one for each coordinate

  Value* number(double value) { return ctx.constant(value, DType::kFloat32); }
  Value* rounded(Value* value) { return ctx.cast(ctx.cast(value, dtype), DType::kFloat32); }
  Value* rounded(std::string_view op, Value* a, Value* b) { return rounded(ctx.op(op, {a, b})); }

  /// What lies between the positions of -1 and 1.
  Value* span() { return aligns ? ctx.op("Sub", {sizes, number(1)}) : sizes; }

  Value* of(Value* grid) {
    Value* from_end = rounded("Add", grid, number(1));
    if (!is_volume) {
      Value* position = rounded("Mul", from_end, ctx.op("Div", {rounded(span()), number(2)}));
      return aligns ? position : rounded("Sub", position, number(0.5));
    }
    if (aligns) return rounded("Mul", ctx.op("Div", {from_end, number(2)}), rounded(span()));
    return rounded("Div", rounded("Sub", rounded("Mul", from_end, rounded(span())), number(1)), number(2));
  }

  /// Positions thrown back at the ends, as often as they come there.
  Value* reflected(Value* position) {
    Value* twice = rounded(ctx.op("Mul", {span(), number(2)}));
    Value* distance = ctx.op("Abs", {aligns ? position : rounded("Add", position, number(0.5))});
    Value* left = nullptr;
    if (is_volume) {
      left = ctx.op("Mod", {distance, twice}, {{"fmod", std::int64_t{1}}});
    } else {
      Value* turns = ctx.op("Floor", {rounded("Div", distance, twice)});
      left = rounded("Sub", distance, rounded("Mul", turns, twice));
    }
    Value* found = ctx.op("Min", {left, rounded("Sub", twice, left)});
    if (!aligns) found = rounded("Sub", found, number(0.5));
    return ctx.op("Min", {ctx.op("Max", {found, number(0)}), ctx.op("Sub", {sizes, number(1)})});
  }

  /// The coordinates between -1 and 1 that GridSample takes for positions.
  Value* as_grid(Value* position) {
    Value* doubled = ctx.op("Mul", {position, number(2)});
    Value* whole = aligns ? ctx.op("Max", {span(), number(1)}) : span();
    Value* from_end = aligns ? doubled : ctx.op("Add", {doubled, number(1)});
    return ctx.op("Sub", {ctx.op("Div", {from_end, whole}), number(1)});
  }
};

/// The grid for GridSample in float32, which comes to the positions that torch computes in 16 bits.
Value* with_narrow_positions(LoweringContext& ctx, Value* x, Value* grid, const Sampling& sampling) {
  std::vector<Value*> sizes;
  for (std::size_t axis = ctx.rank(x); axis-- > 2;)
    sizes.push_back(as_dim(ctx, size_of(ctx, x, static_cast<std::int64_t>(axis))));
  Value* counts = ctx.cast(ctx.concat(sizes, 0), DType::kFloat32);
  NarrowPositions narrow = {ctx, grid->dtype(), sampling.is_volume, ctx.integer(4) != 0, counts};
  Value* position = narrow.of(ctx.cast(grid, DType::kFloat32));
  if (sampling.mode == 2) return narrow.as_grid(position);  // its neighbours are thrown back, and not itself
  if (sampling.outside == Outside::kReflection) position = narrow.reflected(position);
  return narrow.as_grid(sampling.mode == 1 ? ctx.op("Round", {position}) : position);
}

void lower_grid_sampler(LoweringContext& ctx) {
  static constexpr std::array<const char*, 3> kPadding = {"zeros", "border", "reflection"};
  Value* x = ctx.input(0);
  const bool has_operator = ctx.opset() >= 20 || ctx.rank(x) == 4;
  ctx.require(has_operator, "grid_sample over volumes needs opset 20 or more, got " + std::to_string(ctx.opset()));
  const std::int64_t padding = ctx.integer(3);
  ctx.require(padding >= 0 && padding < 3, "the padding mode must be 0, 1 or 2, got " + std::to_string(padding));
  const bool is_double = x->dtype() == DType::kFloat64;
  ctx.require(ctx.opset() >= 20 || !is_double,
              "grid_sample of float64 needs opset 20 or more; or pass .to(torch.float32)");
  const DType dtype = is_double ? DType::kFloat64 : DType::kFloat32;
  const Sampling sampling = {ctx.rank(x) == 5, ctx.integer(2), static_cast<Outside>(padding)};
  Value* grid = ctx.input(1);
  const bool is_narrow = !is_double && grid->dtype() != DType::kFloat32;
  if (is_narrow) grid = with_narrow_positions(ctx, x, grid, sampling);
  Value* y = ctx.op("GridSample", {ctx.cast(x, dtype), with_positions(ctx, grid, sampling)},
                    {{"mode", sampling_mode(ctx, ctx.integer(2))},
                     {"padding_mode", std::string(kPadding.at(static_cast<std::size_t>(padding)))},
                     {"align_corners", ctx.integer(4)}});
  if (!sampling.gives_nan() && !sampling.gives_zero()) return ctx.result(y);
  const double found = sampling.gives_nan() ? std::numeric_limits<double>::quiet_NaN() : 0;
  ctx.result(ctx.where(is_nowhere(ctx, grid), ctx.number_like(found, y), y));
}

/// `count` positions between -1 and 1: from end to end, or the middles of as many intervals.
Value* positions(LoweringContext& ctx, const Size& count, DType dtype, bool aligns) {
  Value* one = ctx.constant(1, dtype);
  Value* steps = ctx.cast(as_scalar(ctx, count), dtype);
  Value* doubled = ctx.op("Mul", {ctx.cast(range(ctx, count), dtype), ctx.constant(2, dtype)});
  if (!aligns) return ctx.op("Sub", {ctx.op("Div", {ctx.op("Add", {doubled, one}), steps}), one});
  if (count.number() == 1) return ctx.expand(ctx.constant(0, dtype), {1});
  Value* spread = ctx.op("Sub", {ctx.op("Div", {doubled, ctx.op("Sub", {steps, one})}), one});
  if (count.number()) return spread;
  return ctx.where(ctx.op("Equal", {steps, one}), ctx.constant(0, dtype), spread);  // a single position is the middle
}

/// A vector along one axis of the grid, repeated over the others; the last axis is for the coordinates.
Value* stretched(LoweringContext& ctx, Value* vector, std::size_t axis, const std::vector<Size>& spatial) {
  std::vector<std::int64_t> others;
  for (std::size_t i = 0; i <= spatial.size(); ++i) {
    if (i != axis) others.push_back(static_cast<std::int64_t>(i));
  }
  std::vector<Size> shape = spatial;
  shape.emplace_back(1);
  return ctx.expand(ctx.unsqueeze(vector, others), shape);
}

/// [points, n + 1]: the coordinates of a regular grid, last axis first, and a one for the translation.
Value* grid_points(LoweringContext& ctx, const std::vector<Size>& spatial, DType dtype, bool aligns) {
  const std::size_t count = spatial.size();
  std::vector<Value*> coordinates;
  for (std::size_t axis = count; axis-- > 0;) {
    coordinates.push_back(stretched(ctx, positions(ctx, spatial[axis], dtype, aligns), axis, spatial));
  }
  coordinates.push_back(stretched(ctx, ctx.expand(ctx.constant(1, dtype), {1}), count, spatial));
  const auto width = static_cast<std::int64_t>(count);
  return ctx.reshape(ctx.concat(coordinates, width), {-1, width + 1});
}

/// theta [batch, n, n + 1] maps the points of a regular grid: [batch, ..., n].
void lower_affine_grid_generator(LoweringContext& ctx) {
  Value* theta = ctx.input(0);
  const std::vector<Size> sizes = ctx.sizes(1);
  const std::vector<Size> spatial(sizes.begin() + 2, sizes.end());
  Value* points = grid_points(ctx, spatial, theta->dtype(), ctx.flag(2));
  std::vector<Size> shape = {sizes[0]};
  shape.insert(shape.end(), spatial.begin(), spatial.end());
  shape.emplace_back(static_cast<std::int64_t>(spatial.size()));
  ctx.result(ctx.reshape(matmul(ctx, points, ctx.swap_axes(theta, 1, 2)), shape));
}

}  // namespace

void populate_grid_sampling(LoweringTable& table) {
  table.add({"aten.grid_sampler.default", "aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default"},
            lower_grid_sampler);
  table.add("aten.affine_grid_generator.default", lower_affine_grid_generator);
}

}  // namespace exportguard::lowering
