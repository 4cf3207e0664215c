#include "exportguard/ir/inference.h"

namespace exportguard::ir {
namespace {

std::optional<Shape> loss_shape(const InferenceContext& ctx) {
  return ctx.text("reduction", "mean") == "none" ? ctx.shape(1) : Shape{};
}

void infer_likelihood_loss(InferenceContext& ctx) { ctx.set(0, ctx.dtype(0), loss_shape(ctx)); }

void infer_cross_entropy_loss(InferenceContext& ctx) {
  ctx.set(0, ctx.dtype(0), loss_shape(ctx));
  ctx.set(1, ctx.dtype(0), ctx.shape(0));  // the log probabilities
}

}  // namespace

void populate_loss(InferenceTable& table) {
  table.add({"NegativeLogLikelihoodLoss"}, infer_likelihood_loss);
  table.add({"SoftmaxCrossEntropyLoss"}, infer_cross_entropy_loss);
}

}  // namespace exportguard::ir
