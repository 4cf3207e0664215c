#include <fmt/format.h>

#include "exportguard/ir/inference.h"
#include "ir/windows.h"

namespace exportguard::ir {
namespace {

std::optional<Shape> pooled(const InferenceContext& ctx) {
  const auto data = ctx.shape(0);
  const auto* kernel = ctx.find_integers("kernel_shape");
  if (kernel == nullptr) ctx.fail("attribute kernel_shape must be given");
  if (!data) return ctx.fresh_shape(kernel->size() + 2);
  if (data->size() != kernel->size() + 2) {
    ctx.fail(fmt::format("the operand must have rank {}, got {}", kernel->size() + 2, data->size()));
  }
  const Windows windows = read_windows(ctx, kernel->size());
  Shape result(data->begin(), data->begin() + 2);
  for (std::size_t i = 0; i < kernel->size(); ++i) {
    result.push_back(window_count(ctx, windows, i, (*data)[i + 2], (*kernel)[i]));
  }
  return result;
}

void infer_pool(InferenceContext& ctx) {
  const auto shape = pooled(ctx);
  ctx.set(0, ctx.dtype(0), shape);
  ctx.set(1, DType::kInt64, shape);  // MaxPool's positions
}

void infer_global_pool(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  for (std::size_t axis = 2; shape && axis < shape->size(); ++axis) (*shape)[axis] = 1;
  ctx.set(0, ctx.dtype(0), std::move(shape));
}

void infer_max_unpool(InferenceContext& ctx) {
  const auto data = ctx.shape(0);
  const auto* kernel = ctx.find_integers("kernel_shape");
  if (const auto given = ctx.elements(2)) return ctx.set(0, ctx.dtype(0), *given);
  if (!data || !kernel || data->size() != kernel->size() + 2 || ctx.has(2)) {
    return ctx.set(0, ctx.dtype(0), data ? std::optional(ctx.fresh_shape(data->size())) : std::nullopt);
  }
  const Windows windows = read_windows(ctx, kernel->size());
  Shape result(data->begin(), data->begin() + 2);
  for (std::size_t i = 0; i < kernel->size(); ++i) {
    const std::int64_t cut = windows.pads[i] + windows.pads[i + kernel->size()];
    result.push_back(((*data)[i + 2] - 1) * windows.strides[i] + (*kernel)[i] - cut);
  }
  ctx.set(0, ctx.dtype(0), std::move(result));
}

Shape regions(const InferenceContext& ctx, const Dim& height, const Dim& width) {
  const auto data = ctx.shape(0);
  const auto boxes = ctx.shape(1);
  return {boxes && !boxes->empty() ? boxes->front() : ctx.fresh(), data && data->size() > 1 ? (*data)[1] : ctx.fresh(),
          height, width};
}

void infer_roi_align(InferenceContext& ctx) {
  ctx.set(0, ctx.dtype(0), regions(ctx, ctx.integer("output_height", 1), ctx.integer("output_width", 1)));
}

void infer_max_roi_pool(InferenceContext& ctx) {
  const auto* sizes = ctx.find_integers("pooled_shape");
  if (sizes == nullptr || sizes->size() != 2) ctx.fail("attribute pooled_shape must have 2 entries");
  ctx.set(0, ctx.dtype(0), regions(ctx, sizes->front(), sizes->back()));
}

}  // namespace

void populate_pooling(InferenceTable& table) {
  table.add({"AveragePool", "LpPool", "MaxPool"}, infer_pool);
  table.add({"GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"}, infer_global_pool);
  table.add({"MaxUnpool"}, infer_max_unpool);
  table.add({"RoiAlign"}, infer_roi_align);
  table.add({"MaxRoiPool"}, infer_max_roi_pool);
}

}  // namespace exportguard::ir
