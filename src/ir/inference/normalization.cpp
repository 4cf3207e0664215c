#include "exportguard/ir/inference.h"

namespace exportguard::ir {
namespace {

void infer_like_data(InferenceContext& ctx) { ctx.set(0, ctx.dtype(0), ctx.shape(0)); }

/// In training the running mean and variance follow.
void infer_batch_normalization(InferenceContext& ctx) {
  infer_like_data(ctx);
  ctx.set(1, ctx.dtype(3), ctx.shape(3));
  ctx.set(2, ctx.dtype(4), ctx.shape(4));
}

/// Mean and inverse deviation have size 1 on the axes that are normalized.
void infer_layer_normalization(InferenceContext& ctx) {
  infer_like_data(ctx);
  auto shape = ctx.shape(0);
  if (shape) {
    for (std::size_t axis = ctx.axis(ctx.integer("axis", -1), shape->size()); axis < shape->size(); ++axis) {
      (*shape)[axis] = 1;
    }
  }
  const DType dtype = ctx.dtype_attribute("stash_type", DType::kFloat32);
  ctx.set(1, dtype, shape);
  ctx.set(2, dtype, shape);
}

void infer_dropout(InferenceContext& ctx) {
  infer_like_data(ctx);
  ctx.set(1, DType::kBool, ctx.shape(0));
}

/// Output, mean, inverse deviation, and the sum of the operands.
void infer_skip_normalization(InferenceContext& ctx) {
  infer_like_data(ctx);
  auto shape = ctx.shape(0);
  if (shape && !shape->empty()) shape->back() = 1;
  ctx.set(1, DType::kFloat32, shape);
  ctx.set(2, DType::kFloat32, shape);
  ctx.set(3, ctx.dtype(0), ctx.shape(0));
}

}  // namespace

void populate_normalization(InferenceTable& table) {
  table.add({"InstanceNormalization", "GroupNormalization", "RMSNormalization"}, infer_like_data);
  table.add({"BatchNormalization"}, infer_batch_normalization);
  table.add({"LayerNormalization"}, infer_layer_normalization);
  table.add({"Dropout"}, infer_dropout);
  table.add_in("com.microsoft", {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"},
               infer_skip_normalization);
}

}  // namespace exportguard::ir
