#include <fmt/format.h>

#include "exportguard/ir/inference.h"
#include "ir/windows.h"

namespace exportguard::ir {
namespace {

/// Sizes of the kernel, by the attribute or else the weight's.
std::optional<Shape> kernel_sizes(const InferenceContext& ctx, const std::optional<Shape>& weight) {
  if (weight) {
    if (weight->size() < 3) ctx.fail(fmt::format("the weight must have rank 3 or more, got {}", weight->size()));
    return Shape(weight->begin() + 2, weight->end());
  }
  const auto* kernel = ctx.find_integers("kernel_shape");
  return kernel ? std::optional(Shape(kernel->begin(), kernel->end())) : std::nullopt;
}

std::optional<Shape> convolved(const InferenceContext& ctx, const std::optional<Shape>& data,
                               const std::optional<Shape>& weight) {
  const auto kernel = kernel_sizes(ctx, weight);
  if (!data || !kernel) return std::nullopt;
  if (data->size() != kernel->size() + 2) {
    ctx.fail(fmt::format("the operand must have rank {}, got {}", kernel->size() + 2, data->size()));
  }
  const Windows windows = read_windows(ctx, kernel->size());
  Shape result = {data->front(), weight ? weight->front() : ctx.fresh()};
  for (std::size_t i = 0; i < kernel->size(); ++i) {
    result.push_back(window_count(ctx, windows, i, (*data)[i + 2], (*kernel)[i]));
  }
  return result;
}

void infer_convolution(InferenceContext& ctx) { ctx.set(0, ctx.dtype(0), convolved(ctx, ctx.shape(0), ctx.shape(1))); }

void infer_integer_convolution(InferenceContext& ctx) {
  ctx.set(0, DType::kInt32, convolved(ctx, ctx.shape(0), ctx.shape(1)));
}

/// Operands are the data, its scale and zero point, the weight and its two, and those of the result.
void infer_qlinear_convolution(InferenceContext& ctx) {
  ctx.set(0, ctx.dtype(7), convolved(ctx, ctx.shape(0), ctx.shape(3)));
}

Dim transposed_size(const InferenceContext& ctx, const Windows& windows, std::size_t i, const Dim& size,
                    const Dim& kernel) {
  const auto* added = ctx.find_integers("output_padding");
  const std::int64_t extra = added && i < added->size() ? (*added)[i] : 0;
  if (windows.auto_pad.starts_with("SAME")) return size * windows.strides[i];
  const bool has_pads = windows.auto_pad == "NOTSET";
  const std::int64_t cut = has_pads ? windows.pads[i] + windows.pads[i + windows.strides.size()] : 0;
  return (size - 1) * windows.strides[i] + (kernel - 1) * windows.dilations[i] + 1 + extra - cut;
}

void infer_transposed_convolution(InferenceContext& ctx) {
  const auto data = ctx.shape(0);
  const auto weight = ctx.shape(1);
  const auto kernel = kernel_sizes(ctx, weight);
  if (!data || !kernel) return ctx.set(0, ctx.dtype(0), std::nullopt);
  if (data->size() != kernel->size() + 2) {
    ctx.fail(fmt::format("the operand must have rank {}, got {}", kernel->size() + 2, data->size()));
  }
  const Windows windows = read_windows(ctx, kernel->size());
  const auto* given = ctx.find_integers("output_shape");
  Shape result = {data->front(), weight ? (*weight)[1] * ctx.integer("group", 1) : ctx.fresh()};
  for (std::size_t i = 0; i < kernel->size(); ++i) {
    const bool is_given = given && given->size() == kernel->size();
    result.push_back(is_given ? Dim((*given)[i]) : transposed_size(ctx, windows, i, (*data)[i + 2], (*kernel)[i]));
  }
  ctx.set(0, ctx.dtype(0), std::move(result));
}

/// Columns of patches put together to images: [batch, channels * patch, count] → [batch, channels, …].
void infer_col2im(InferenceContext& ctx) {
  const auto data = ctx.shape(0);
  const auto image = ctx.elements(1);
  const auto block = ctx.elements(2);
  if (!image) return ctx.set(0, ctx.dtype(0), std::nullopt);
  SymExpr patch = 1;
  for (const SymExpr& size : block.value_or(Elements{})) patch = patch * size;
  const bool has_channels = data && data->size() == 3 && block && patch.constant() != 0;
  Shape result = {data && !data->empty() ? data->front() : ctx.fresh(),
                  has_channels ? floor_div((*data)[1], patch) : ctx.fresh()};
  result.insert(result.end(), image->begin(), image->end());
  ctx.set(0, ctx.dtype(0), std::move(result));
}

}  // namespace

void populate_convolution(InferenceTable& table) {
  table.add({"Conv", "DeformConv"}, infer_convolution);
  table.add({"ConvInteger"}, infer_integer_convolution);
  table.add({"QLinearConv"}, infer_qlinear_convolution);
  table.add({"ConvTranspose"}, infer_transposed_convolution);
  table.add({"Col2Im"}, infer_col2im);
}

}  // namespace exportguard::ir
