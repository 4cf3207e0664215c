#include <algorithm>

#include "exportguard/ir/inference.h"

namespace exportguard::ir {
namespace {

void infer_concatenation(InferenceContext& ctx) {
  const auto a = ctx.shape(0);
  const auto b = ctx.shape(1);
  ctx.set(0, DType::kString, a && b ? std::optional(ctx.broadcast(*a, *b)) : std::nullopt);
}

void infer_match(InferenceContext& ctx) { ctx.set(0, DType::kBool, ctx.shape(0)); }

/// Words may be left out: how many stay depends on them.
void infer_normalized(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  if (shape && !shape->empty()) shape->back() = ctx.fresh();
  ctx.set(0, DType::kString, std::move(shape));
}

void infer_split(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  ctx.set(1, DType::kInt64, shape);
  if (shape) shape->push_back(ctx.fresh());
  ctx.set(0, DType::kString, std::move(shape));
}

/// One column for each n-gram.
void infer_counts(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  const auto* columns = ctx.find_integers("ngram_indexes");
  const bool is_known = columns && !columns->empty();
  const Dim width = is_known ? Dim(*std::ranges::max_element(*columns) + 1) : ctx.fresh();
  if (shape && shape->empty()) shape->push_back(width);
  if (shape) shape->back() = width;
  ctx.set(0, DType::kFloat32, std::move(shape));
}

}  // namespace

void populate_text(InferenceTable& table) {
  table.add({"StringConcat"}, infer_concatenation);
  table.add({"RegexFullMatch"}, infer_match);
  table.add({"StringNormalizer"}, infer_normalized);
  table.add({"StringSplit"}, infer_split);
  table.add({"TfIdfVectorizer"}, infer_counts);
}

}  // namespace exportguard::ir
