#include <fmt/format.h>

#include "exportguard/ir/inference.h"

namespace exportguard::ir {
namespace {

void infer_like_data(InferenceContext& ctx) { ctx.set(0, ctx.dtype(0), ctx.shape(0)); }

/// An operand of attention as [batch, heads, rows, width].
struct Heads {
  Dim batch, heads, rows, width;
};

std::optional<Heads> split_heads(const InferenceContext& ctx, std::size_t i, std::string_view count) {
  const auto shape = ctx.shape(i);
  if (!shape) return std::nullopt;
  if (shape->size() == 4) return Heads{(*shape)[0], (*shape)[1], (*shape)[2], (*shape)[3]};
  if (shape->size() != 3) ctx.fail(fmt::format("operand {} must have rank 3 or 4, got {}", i, shape->size()));
  const std::int64_t heads = ctx.integer(count, 0);
  if (heads < 1) ctx.fail(fmt::format("attribute {} must be given where operand {} has rank 3", count, i));
  return Heads{(*shape)[0], heads, (*shape)[1], floor_div((*shape)[2], heads)};
}

/// Rows of the cache and the new ones.
Dim all_rows(const InferenceContext& ctx, std::size_t past, const Dim& rows) {
  if (!ctx.has(past)) return rows;
  const auto shape = ctx.shape(past);
  return shape && shape->size() == 4 ? (*shape)[2] + rows : ctx.fresh();
}

/// ONNX's Attention: query, key, value, mask, past key and value → output, present key and value, scores.
void infer_attention(InferenceContext& ctx) {
  for (std::size_t i = 0; i < 4; ++i) ctx.set(i, ctx.dtype(i == 2 ? 2 : i == 1 ? 1 : 0), std::nullopt);
  const auto query = split_heads(ctx, 0, "q_num_heads");
  const auto key = split_heads(ctx, 1, "kv_num_heads");
  const auto value = split_heads(ctx, 2, "kv_num_heads");
  if (!query || !key || !value) return;
  const bool is_flat = ctx.rank(0) == 3U;
  ctx.set(0, ctx.dtype(0),
          is_flat ? Shape{query->batch, query->rows, query->heads * value->width}
                  : Shape{query->batch, query->heads, query->rows, value->width});
  const Dim rows = all_rows(ctx, 4, key->rows);
  ctx.set(1, ctx.dtype(1), Shape{key->batch, key->heads, rows, key->width});
  ctx.set(2, ctx.dtype(2), Shape{value->batch, value->heads, all_rows(ctx, 5, value->rows), value->width});
  ctx.set(3, ctx.dtype(0), Shape{query->batch, query->heads, query->rows, rows});
}

/// onnxruntime's MultiHeadAttention: query [batch, rows, width], key, value, bias, …; the value's width is that of the
/// output. Its other forms (packed, key and value as caches) are left open.
void infer_multi_head_attention(InferenceContext& ctx) {
  for (std::size_t i = 0; i < ctx.output_count(); ++i) ctx.set(i, ctx.dtype(0), std::nullopt);
  const auto query = ctx.shape(0);
  const auto value = ctx.shape(2);
  if (!query || query->size() != 3 || !value || value->size() != 3) return;
  ctx.set(0, ctx.dtype(0), Shape{(*query)[0], (*query)[1], (*value)[2]});
}

/// The heads of the queries alone of [batch, sequence, heads of queries, keys and values].
std::optional<Shape> queries_of_packed(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  const std::int64_t queries = ctx.integer("num_heads", 0);
  const std::int64_t heads = queries + 2 * ctx.integer("kv_num_heads", 0);
  const auto width = shape && shape->size() == 3 ? shape->back().constant() : std::nullopt;
  if (!width || queries < 1 || heads <= queries) return std::nullopt;
  shape->back() = Dim(*width / heads * queries);
  return shape;
}

/// onnxruntime's GroupQueryAttention: the output is like the query unless the operands are packed into it.
void infer_group_query_attention(InferenceContext& ctx) {
  ctx.set(0, ctx.dtype(0), ctx.has(1) ? ctx.shape(0) : queries_of_packed(ctx));
  for (std::size_t i = 1; i < ctx.output_count(); ++i) {
    const auto past = ctx.shape(i + 2);
    ctx.set(i, ctx.dtype(0),
            past && past->size() == 4 ? std::optional(Shape{(*past)[0], (*past)[1], ctx.fresh(), (*past)[3]})
                                      : std::nullopt);
  }
}

}  // namespace

void populate_attention(InferenceTable& table) {
  table.add({"Attention"}, infer_attention);
  table.add({"RotaryEmbedding"}, infer_like_data);
  table.add_in("com.microsoft", {"RotaryEmbedding", "MoE", "QMoE"}, infer_like_data);
  table.add_in("com.microsoft", {"MultiHeadAttention"}, infer_multi_head_attention);
  table.add_in("com.microsoft", {"GroupQueryAttention"}, infer_group_query_attention);
}

}  // namespace exportguard::ir
