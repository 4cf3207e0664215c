#include <fmt/format.h>

#include "exportguard/ir/inference.h"

// Operators that read or write elements at positions given as tensors.

namespace exportguard::ir {
namespace {

/// An entry of a list of sizes, or several of them.
void gather_elements(InferenceContext& ctx) {
  const auto data = ctx.elements(0);
  const auto indices = ctx.integers(1);
  if (!data || !indices || ctx.rank(0) != 1U || ctx.rank(1).value_or(2) > 1) return;
  const auto count = static_cast<std::int64_t>(data->size());
  Elements picked;
  for (const std::int64_t index : *indices) {
    if (index < -count || index >= count) {
      ctx.fail(fmt::format("index must be between {} and {}, got {}", -count, count - 1, index));
    }
    picked.push_back((*data)[static_cast<std::size_t>(index < 0 ? index + count : index)]);
  }
  ctx.set_elements(std::move(picked));
}

void infer_gather(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  const auto indices = ctx.shape(1);
  if (!shape || !indices) return ctx.set(0, ctx.dtype(0), std::nullopt);
  const auto axis = static_cast<std::ptrdiff_t>(ctx.axis(ctx.integer("axis", 0), shape->size()));
  shape->erase(shape->begin() + axis);
  shape->insert(shape->begin() + axis, indices->begin(), indices->end());
  ctx.set(0, ctx.dtype(0), std::move(shape));
  gather_elements(ctx);
}

void infer_gather_elements(InferenceContext& ctx) { ctx.set(0, ctx.dtype(0), ctx.shape(1)); }

void infer_gather_nd(InferenceContext& ctx) {
  const auto data = ctx.shape(0);
  auto indices = ctx.shape(1);
  const auto batch = ctx.integer("batch_dims", 0);
  const auto depth = indices && !indices->empty() ? indices->back().constant() : std::nullopt;
  if (!data || !depth) return ctx.set(0, ctx.dtype(0), std::nullopt);
  const auto rank = static_cast<std::int64_t>(data->size());
  if (batch < 0 || *depth < 0 || batch > rank || *depth > rank - batch) {
    ctx.fail(fmt::format("{} batch axes and indices of {} entries are more than rank {}", batch, *depth, data->size()));
  }
  indices->pop_back();
  indices->insert(indices->end(), data->begin() + batch + *depth, data->end());
  ctx.set(0, ctx.dtype(0), std::move(indices));
}

void infer_written(InferenceContext& ctx) { ctx.set(0, ctx.dtype(0), ctx.shape(0)); }

void infer_compress(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  if (!ctx.has_attribute("axis")) return ctx.set(0, ctx.dtype(0), Shape{ctx.fresh()});
  if (shape) (*shape)[ctx.axis(ctx.integer("axis", 0), shape->size())] = ctx.fresh();
  ctx.set(0, ctx.dtype(0), std::move(shape));
}

void infer_non_zero(InferenceContext& ctx) {
  const auto rank = ctx.rank(0);
  // onnxruntime and ONNX's reference count a tensor of rank 0 as one of rank 1.
  const Dim rows = rank && *rank > 0 ? Dim(static_cast<std::int64_t>(*rank)) : ctx.fresh();
  ctx.set(0, DType::kInt64, Shape{rows, ctx.fresh()});
}

void infer_unique(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  const Dim count = ctx.fresh();
  if (!ctx.has_attribute("axis")) {
    shape = Shape{count};
  } else if (shape) {
    (*shape)[ctx.axis(ctx.integer("axis", 0), shape->size())] = count;
  }
  ctx.set(0, ctx.dtype(0), std::move(shape));
  ctx.set(1, DType::kInt64, Shape{count});
  ctx.set(2, DType::kInt64, Shape{ctx.fresh()});
  ctx.set(3, DType::kInt64, Shape{count});
}

void infer_top_k(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  const auto count = ctx.elements(1);
  if (shape) {
    (*shape)[ctx.axis(ctx.integer("axis", -1), shape->size())] =
        count && count->size() == 1 ? count->front() : ctx.fresh();
  }
  ctx.set(0, ctx.dtype(0), shape);
  ctx.set(1, DType::kInt64, std::move(shape));
}

void infer_arg_reduction(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  if (shape) {
    const std::size_t axis = ctx.axis(ctx.integer("axis", 0), shape->size());
    if (ctx.integer("keepdims", 1) != 0) {
      (*shape)[axis] = 1;
    } else {
      shape->erase(shape->begin() + static_cast<std::ptrdiff_t>(axis));
    }
  }
  ctx.set(0, DType::kInt64, std::move(shape));
}

/// Boxes that are kept, as triples (batch, class, box).
void infer_non_max_suppression(InferenceContext& ctx) { ctx.set(0, DType::kInt64, Shape{ctx.fresh(), 3}); }

}  // namespace

void populate_indexing(InferenceTable& table) {
  table.add({"Gather"}, infer_gather);
  table.add({"GatherElements"}, infer_gather_elements);
  table.add({"GatherND"}, infer_gather_nd);
  table.add({"ScatterElements", "ScatterND", "TensorScatter"}, infer_written);
  table.add({"Compress"}, infer_compress);
  table.add({"NonZero"}, infer_non_zero);
  table.add({"Unique"}, infer_unique);
  table.add({"TopK"}, infer_top_k);
  table.add({"ArgMax", "ArgMin"}, infer_arg_reduction);
  table.add({"NonMaxSuppression"}, infer_non_max_suppression);
}

}  // namespace exportguard::ir
