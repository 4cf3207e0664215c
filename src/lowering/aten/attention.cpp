#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/contraction.h"
#include "lowering/fused_attention.h"
#include "lowering/kernels.h"
#include "lowering/reductions.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// [..., heads, sequence, size]; the mask, if any, broadcasts to the scores.
struct Attention {
  Value* query;
  Value* key;
  Value* value;
  Value* mask = nullptr;  ///< bool: true takes part; float: added to the scores
  bool is_causal = false;
  double scale = 1;
  double dropout = 0;
};

// ------------------------------------------------------------------------------------------------ masks

/// Query i sees the keys 0 to i: torch aligns the triangle with the first key, whatever the lengths.
Value* causal_mask(LoweringContext& ctx, const Attention& attention) {
  Value* rows = range(ctx, size_of(ctx, attention.query, -2));
  Value* columns = range(ctx, size_of(ctx, attention.key, -2));
  return ctx.op("GreaterOrEqual", {ctx.unsqueeze(rows, {1}), columns});
}

/// A mask of bools as numbers to add: minus infinity where a key is hidden.
Value* additive(LoweringContext& ctx, Value* mask, DType dtype) {
  if (mask->dtype() != DType::kBool) return ctx.cast(mask, dtype);
  return ctx.where(mask, ctx.constant(0, dtype), ctx.constant(-kInfinity, dtype));
}

/// Bool [..., sequence, 1]: whether the query sees any key at all.
Value* sees_any(LoweringContext& ctx, Value* mask) {
  const ReducedAxes keys = {{static_cast<std::int64_t>(ctx.rank(mask)) - 1}, true};
  if (mask->dtype() == DType::kBool) return any_true(ctx, mask, keys);
  Value* largest = extreme_value(ctx, mask, Extreme::kLargest, keys);
  // A NaN is seen: eager's result is NaN there.
  return ctx.op("Not", {kernel_op(ctx, "Equal", {largest, ctx.number_like(-kInfinity, largest)})});
}

// ------------------------------------------------------------------------------------------------ the operator

Value* dropped_out(LoweringContext& ctx, Value* x, double probability) {
  if (probability == 0) return x;
  Value* ratio = ctx.constant(probability, DType::kFloat32);
  return ctx.op("Dropout", {x, ratio, ctx.constant(true, DType::kBool)});
}

/// MatMul, Softmax, MatMul, which run at every opset and where there is no key yet, as with an empty cache. Narrow
/// floats go through the softmax as float32, as in torch's kernels.
Value* attention_weights(LoweringContext& ctx, const Attention& attention, Value* mask) {
  Value* query = times_factor(ctx, attention.query, attention.scale);
  Value* scores = ctx.widened(matmul(ctx, query, ctx.swap_axes(attention.key, -1, -2)));
  if (mask != nullptr) scores = same_dtype_op(ctx, "Add", {scores, additive(ctx, mask, scores->dtype())});
  Value* weights = same_dtype_op(ctx, "Softmax", {scores}, {{"axis", -1}});
  return dropped_out(ctx, ctx.cast(weights, attention.value->dtype()), attention.dropout);
}

/// A query that sees no key gives zeros: torch 2.5 and later return them where a softmax of nothing but minus infinity
/// has NaN.
Value* without_blind_queries(LoweringContext& ctx, Value* result, Value* mask) {
  return ctx.where(sees_any(ctx, mask), result, ctx.number_like(0, result));
}

Value* attend(LoweringContext& ctx, const Attention& attention) {
  if (attention.is_causal) {  // every query sees the first key
    Value* weights = attention_weights(ctx, attention, causal_mask(ctx, attention));
    return matmul(ctx, weights, attention.value);
  }
  Value* result = matmul(ctx, attention_weights(ctx, attention, attention.mask), attention.value);
  return attention.mask ? without_blind_queries(ctx, result, attention.mask) : result;
}

// ------------------------------------------------------------------------------------------------ one operator

bool is_positive_sum(const SymExpr& expression) {
  return std::ranges::all_of(expression.terms(), [](const SymExpr::Term& term) { return term.coefficient > 0; });
}

/// The input of the graph that the value shows, in another shape at the most.
bool shows_input(const Value* value) {
  static constexpr std::string_view kViews[] = {"Transpose", "Reshape", "Unsqueeze", "Squeeze", "Expand", "Cast"};
  while (value->producer() && std::ranges::find(kViews, value->producer()->op()) != std::end(kViews))
    value = value->producer()->find_input(0);
  return value->is_input();
}

/// Whether there is a key where there is a query: `past + seq` of them for `seq` queries, or some that the model
/// computes. Keys that are an input alone are a cache, which may be empty.
bool has_a_key(LoweringContext& ctx, const Attention& attention) {
  if (!departs(ctx, Departure::kAttentionOfNothing)) return true;
  const ir::Dim keys = ctx.size(attention.key, -2);
  if (const auto number = keys.constant()) return *number > 0;
  return is_positive_sum(keys - ctx.size(attention.query, -2)) || !shows_input(attention.key);
}

bool has_fused_kernel(DType dtype) { return is_floating(dtype) && bit_width(dtype) <= 32 && bit_width(dtype) >= 16; }

/// [batch, heads, sequence, size] of one dtype, without a size that is known to be 0. Keys have the heads of the
/// values.
bool has_fused_shapes(LoweringContext& ctx, const Attention& attention) {
  const Value* operands[] = {attention.query, attention.key, attention.value};
  for (const Value* operand : operands) {
    if (ctx.rank(operand) != 4 || operand->dtype() != attention.query->dtype()) return false;
    if (ctx.size(operand, 0) != ctx.size(attention.query, 0)) return false;
    if (std::ranges::find(ctx.shape(operand), ir::Dim(0)) != ctx.shape(operand).end()) return false;
  }
  const bool is_known = ctx.size(attention.query, 1).is_constant() && ctx.size(attention.key, 1).is_constant();
  return is_known && ctx.size(attention.key, 1) == ctx.size(attention.value, 1) &&
         ctx.size(attention.key, 2) == ctx.size(attention.value, 2) &&
         ctx.size(attention.query, 3) == ctx.size(attention.key, 3);
}

/// Bools, or float32 to be added: see `without_lowest`.
bool has_fused_mask(const Attention& attention) {
  if (attention.mask == nullptr) return true;
  const DType dtype = attention.mask->dtype();
  const bool is_float = dtype == DType::kFloat32 && attention.query->dtype() == DType::kFloat32;
  return !attention.is_causal && (dtype == DType::kBool || is_float);
}

bool has_fused_form(LoweringContext& ctx, const Attention& attention) {
  const bool is_plain = attention.dropout == 0 && attention.scale > 0 && has_fused_kernel(attention.query->dtype());
  return ctx.opset() >= 23 && is_plain && has_fused_mask(attention) && has_fused_shapes(ctx, attention) &&
         has_a_key(ctx, attention);
}

/// A query may be hidden from every key with the smallest finite number. torch then gives the mean of the values, a
/// kernel that takes that number for minus infinity gives zeros. The number next to it is as small: a
/// score added to either is lost, in float32 up to 1e31, and the mean comes out.
Value* without_lowest(LoweringContext& ctx, Value* mask) {
  if (mask->dtype() == DType::kBool || !departs(ctx, Departure::kAttentionLowestIsHidden)) return mask;
  const float lowest = std::numeric_limits<float>::lowest();
  Value* is_lowest = ctx.op("Equal", {mask, ctx.number_like(lowest, mask)});
  return ctx.where(is_lowest, ctx.number_like(std::nextafter(lowest, 0.0F), mask), mask);
}

/// The mask as the kernel takes it: some stretch it over samples and heads, not over queries and keys.
Value* mask_of_scores(LoweringContext& ctx, const Attention& attention) {
  if (attention.mask == nullptr) return nullptr;
  if (!departs(ctx, Departure::kAttentionMaskOfScores)) return without_lowest(ctx, attention.mask);
  std::vector<Size> sizes = ctx.sizes_of(attention.mask);
  if (sizes.size() < 2) sizes.insert(sizes.begin(), 2 - sizes.size(), Size(1));
  sizes[sizes.size() - 2] = size_of(ctx, attention.query, -2);
  sizes[sizes.size() - 1] = size_of(ctx, attention.key, -2);
  return ctx.expand(without_lowest(ctx, attention.mask), sizes);
}

/// A query that sees no key gives zeros here as well, and the heads of keys are shared as torch shares them.
Value* fused(LoweringContext& ctx, const Attention& attention) {
  std::vector<Value*> operands = {attention.query, attention.key, attention.value};
  if (Value* mask = mask_of_scores(ctx, attention)) operands.push_back(mask);
  std::vector<ir::NamedAttribute> attributes;
  attributes.emplace_back("scale", attention.scale);
  if (attention.is_causal) attributes.emplace_back("is_causal", std::int64_t{1});
  return ctx.op("Attention", operands, std::move(attributes));
}

// ------------------------------------------------------------------------------------------------ grouped queries

/// [..., heads, a, b] as [..., groups, heads / groups, a, b].
Value* split_heads(LoweringContext& ctx, Value* x, const Size& groups, const Size& heads_in_group) {
  std::vector<Size> sizes = ctx.sizes_of(x);
  const auto heads = sizes.end() - 3;
  *heads = groups;
  sizes.insert(heads + 1, heads_in_group);
  return ctx.reshape(x, sizes);
}

Value* split_mask_heads(LoweringContext& ctx, Value* mask, const Size& groups, const Size& heads_in_group) {
  const std::size_t rank = ctx.rank(mask);
  if (rank < 3) return mask;
  const auto heads = static_cast<std::int64_t>(rank) - 3;
  const bool is_shared = ctx.size(mask, heads).constant() == 1;
  return is_shared ? ctx.unsqueeze(mask, {heads}) : split_heads(ctx, mask, groups, heads_in_group);
}

/// Several query heads share one head of keys and values: the heads get an axis for the group and one within it, over
/// which keys and values broadcast, so that nothing is repeated in memory.
Value* attend_grouped(LoweringContext& ctx, Attention attention) {
  const auto heads = ctx.size(attention.query, -3).constant();
  const auto groups = ctx.size(attention.key, -3).constant();
  const bool divides = heads && groups && *groups > 0 && *heads % *groups == 0;
  ctx.require(divides, "enable_gqa needs a known number of query heads that the number of key heads divides");
  if (*heads == *groups) return attend(ctx, attention);
  const std::int64_t within = *heads / *groups;
  const auto axis = static_cast<std::int64_t>(ctx.rank(attention.query)) - 2;
  const std::vector<Size> sizes = ctx.sizes_of(attention.query);
  std::vector<Size> result_sizes(sizes.begin(), sizes.end() - 1);
  result_sizes.push_back(size_of(ctx, attention.value, -1));
  attention.query = split_heads(ctx, attention.query, *groups, within);
  attention.key = ctx.unsqueeze(attention.key, {axis});
  attention.value = ctx.unsqueeze(attention.value, {axis});
  if (attention.mask) attention.mask = split_mask_heads(ctx, attention.mask, *groups, within);
  return ctx.reshape(attend(ctx, attention), result_sizes);
}

// ------------------------------------------------------------------------------------------------ rows

/// The factor of the scores; none if the size of a head changes, of which it is the inverse root.
std::optional<double> scale_of(LoweringContext& ctx, std::size_t argument) {
  if (ctx.has(argument)) return ctx.number(argument);
  const auto size = ctx.size(ctx.input(0), -1).constant();
  if (!size) return std::nullopt;
  return *size == 0 ? 1 : 1 / std::sqrt(static_cast<double>(*size));
}

/// The query with the factor in it that the size of its heads gives.
Value* scaled_query(LoweringContext& ctx) {
  Value* query = ctx.input(0);
  Value* size = ctx.cast(as_scalar(ctx, size_of(ctx, query, -1)), DType::kFloat64);
  Value* factor = ctx.op("Pow", {size, ctx.constant(-0.5, DType::kFloat64)});
  return ctx.op("Mul", {query, ctx.cast(factor, query->dtype())});
}

/// What all variants begin with: query, key, value.
Attention attention_of(LoweringContext& ctx, std::size_t dropout, std::size_t is_causal, std::size_t scale) {
  const std::optional<double> factor = scale_of(ctx, scale);
  return {.query = factor ? ctx.input(0) : scaled_query(ctx),
          .key = ctx.input(1),
          .value = ctx.input(2),
          .is_causal = ctx.flag(is_causal),
          .scale = factor.value_or(1),
          .dropout = ctx.number(dropout)};
}

/// The operator shares heads of keys as grouped queries do; a single one is what torch would broadcast as well.
bool has_fused_heads(LoweringContext& ctx, const Attention& attention, bool is_grouped) {
  const std::int64_t heads = *ctx.size(attention.query, 1).constant();
  const std::int64_t groups = *ctx.size(attention.key, 1).constant();
  return is_grouped ? heads % groups == 0 : heads == groups || groups == 1;
}

Attention scaled_dot_product_attention(LoweringContext& ctx) {
  Attention attention = attention_of(ctx, 4, 5, 6);
  attention.mask = ctx.find_input(3);
  return attention;
}

void lower_scaled_dot_product_attention(LoweringContext& ctx) {
  const Attention attention = scaled_dot_product_attention(ctx);
  ctx.result(ctx.flag(7) ? attend_grouped(ctx, attention) : attend(ctx, attention));
}

void lower_attention_math(LoweringContext& ctx) {
  ctx.require(!ctx.has(6), "a dropout mask has no ONNX form");
  ctx.require(!ctx.flag(8), "enable_gqa has no ONNX form here; use scaled_dot_product_attention");
  Attention attention = attention_of(ctx, 4, 5, 7);
  attention.mask = attention.is_causal ? causal_mask(ctx, attention) : ctx.find_input(3);
  Value* weights = attention_weights(ctx, attention, attention.mask);
  if (attention.mask) weights = without_blind_queries(ctx, weights, attention.mask);
  ctx.results({matmul(ctx, weights, attention.value), weights});
}

/// The first output of several; the others serve the backward pass.
void give_first(LoweringContext& ctx, Value* result) {
  std::vector<Value*> results(ctx.node().output_count(), nullptr);
  results.front() = result;
  ctx.results(results);
}

void lower_flash_attention_for_cpu(LoweringContext& ctx) {
  Attention attention = attention_of(ctx, 3, 4, 6);
  attention.mask = ctx.find_input(5);
  give_first(ctx, attend(ctx, attention));
}

void lower_flash_attention(LoweringContext& ctx) { give_first(ctx, attend(ctx, attention_of(ctx, 3, 4, 6))); }

void lower_efficient_attention(LoweringContext& ctx) {
  Attention attention = attention_of(ctx, 5, 6, 7);
  attention.mask = ctx.find_input(3);
  give_first(ctx, attend(ctx, attention));
}

}  // namespace

void lower_attention_as_one(LoweringContext& ctx) {
  const Attention attention = scaled_dot_product_attention(ctx);
  const bool is_one = has_fused_form(ctx, attention) && has_fused_heads(ctx, attention, ctx.flag(7));
  if (!is_one) return lower_scaled_dot_product_attention(ctx);
  ctx.result(fused(ctx, attention));
}

void populate_attention(LoweringTable& table) {
  table.add("aten.scaled_dot_product_attention.default", lower_scaled_dot_product_attention);
  table.add("aten._scaled_dot_product_attention_math.default", lower_attention_math);
  table.add("aten._scaled_dot_product_flash_attention_for_cpu.default", lower_flash_attention_for_cpu);
  table.add("aten._scaled_dot_product_flash_attention.default", lower_flash_attention);
  table.add("aten._scaled_dot_product_efficient_attention.default", lower_efficient_attention);
}

}  // namespace exportguard::lowering
