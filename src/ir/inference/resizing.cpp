#include <fmt/format.h>

#include <cmath>

#include "exportguard/ir/inference.h"

namespace exportguard::ir {
namespace {

std::vector<std::size_t> resized_axes(const InferenceContext& ctx, std::size_t rank) {
  std::vector<std::size_t> axes;
  if (const auto* given = ctx.find_integers("axes")) {
    for (const std::int64_t axis : *given) axes.push_back(ctx.axis(axis, rank));
  } else {
    for (std::size_t axis = 0; axis < rank; ++axis) axes.push_back(axis);
  }
  return axes;
}

std::optional<std::vector<double>> scales(const InferenceContext& ctx) {
  const Tensor* tensor = ctx.find_constant(2);
  return tensor && tensor->numel() > 0 ? std::optional(tensor->to_doubles()) : std::nullopt;
}

/// By sizes (operand 3) or by scales (operand 2): floor(size * scale).
void infer_resize(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  if (!shape) return ctx.set(0, ctx.dtype(0), std::nullopt);

  const auto sizes = ctx.elements(3);
  const auto factors = scales(ctx);
  const bool stretches = ctx.text("keep_aspect_ratio_policy", "stretch") == "stretch";
  const auto axes = resized_axes(ctx, shape->size());

  for (std::size_t i = 0; i < axes.size(); ++i) {
    Dim& size = (*shape)[axes[i]];
    const Dim old = size;
    size = ctx.fresh();
    if (sizes && i < sizes->size() && stretches) size = (*sizes)[i];
    if (!factors || ctx.has(3) || i >= factors->size()) continue;
    if ((*factors)[i] == 1.0) size = old;
    if (const auto number = old.constant()) {
      size = static_cast<std::int64_t>(std::floor(static_cast<float>(*number) * static_cast<float>((*factors)[i])));
    }
  }
  ctx.set(0, ctx.dtype(0), std::move(shape));
}

/// [n, 2, 3] and (n, c, h, w) → [n, h, w, 2]; a dimension more in space.
void infer_affine_grid(InferenceContext& ctx) {
  const auto size = ctx.elements(1);
  const auto given = ctx.shape(1);
  const auto count = given && given->size() == 1 ? given->front().constant() : std::nullopt;
  if (!size && !count) return ctx.set(0, ctx.dtype(0), std::nullopt);
  Shape result = size ? *size : ctx.fresh_shape(static_cast<std::size_t>(*count));
  if (result.size() != 4 && result.size() != 5) {
    ctx.fail(fmt::format("size must have 4 or 5 entries, got {}", result.size()));
  }
  const Dim coordinates = static_cast<std::int64_t>(result.size()) - 2;
  result.erase(result.begin() + 1);
  result.push_back(coordinates);
  ctx.set(0, ctx.dtype(0), std::move(result));
}

void infer_grid_sample(InferenceContext& ctx) {
  const auto data = ctx.shape(0);
  const auto grid = ctx.shape(1);
  if (!data || !grid || data->size() < 2 || grid->size() != data->size()) {
    return ctx.set(0, ctx.dtype(0), data ? std::optional(ctx.fresh_shape(data->size())) : std::nullopt);
  }
  Shape result(data->begin(), data->begin() + 2);
  result.insert(result.end(), grid->begin() + 1, grid->end() - 1);
  ctx.set(0, ctx.dtype(0), std::move(result));
}

/// Height, width and channels of a picture in a file.
void infer_image(InferenceContext& ctx) {
  const Dim channels = ctx.text("pixel_format", "RGB") == "Grayscale" ? 1 : 3;
  ctx.set(0, DType::kUint8, Shape{ctx.fresh(), ctx.fresh(), channels});
}

}  // namespace

void populate_resizing(InferenceTable& table) {
  table.add({"Resize"}, infer_resize);
  table.add({"AffineGrid"}, infer_affine_grid);
  table.add({"GridSample"}, infer_grid_sample);
  table.add({"ImageDecoder"}, infer_image);
}

}  // namespace exportguard::ir
