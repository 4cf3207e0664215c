#include "exportguard/ir/inference.h"

namespace exportguard::ir {
namespace {

bool keeps_sizes(DType dtype) { return dtype == DType::kInt64 || dtype == DType::kInt32; }

void take_elements(InferenceContext& ctx, DType to) {
  // Sizes beyond int32 are cut off by a cast to it; a tensor of so many rows is not what a program of int32 sizes has.
  if (!keeps_sizes(to) || !keeps_sizes(ctx.dtype(0))) return;
  if (const auto elements = ctx.elements(0); elements && to == DType::kInt64) ctx.set_elements(*elements);
}

void infer_cast(InferenceContext& ctx) {
  const DType to = ctx.dtype_attribute("to", DType::kUndefined);
  ctx.set(0, to, ctx.shape(0));
  take_elements(ctx, to);
}

void infer_cast_like(InferenceContext& ctx) {
  ctx.set(0, ctx.dtype(1), ctx.shape(0));
  take_elements(ctx, ctx.dtype(1));
}

}  // namespace

void populate_casting(InferenceTable& table) {
  table.add({"Cast"}, infer_cast);
  table.add({"CastLike"}, infer_cast_like);
}

}  // namespace exportguard::ir
