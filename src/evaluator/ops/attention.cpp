// Attention and RotaryEmbedding of ONNX 23 and later, GroupQueryAttention and RotaryEmbedding of com.microsoft.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// [batch, length, heads * size] as [batch, heads, length, size]; four axes stay.
Tensor by_heads(const Call& call, const Tensor& x, std::int64_t heads) {
  if (x.dim() == 4) return x;
  call.require(x.dim() == 3 && heads > 0 && x.size(2) % heads == 0, "an input cannot be split into heads");
  return x.reshape({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

Tensor without_heads(const Tensor& y) {
  return y.transpose(1, 2).reshape({y.size(0), y.size(2), y.size(1) * y.size(3)});
}

struct Query {
  Tensor q;  // [batch, heads, length, size]
  Tensor k;  // past included
  Tensor v;
  std::optional<Tensor> bias;  // added to the scores, in float32
  double scale;
  double softcap;
};

Tensor repeated(const Tensor& x, std::int64_t heads) {
  return x.size(1) == heads ? x : x.repeat_interleave(heads / x.size(1), 1);
}

// ---------------------------------------------------------------- what may be seen

// Which key each query may see, [batch or 1, 1, queries, keys]: those up to its own position, which is `offset` behind
// the number of the query, and within the window on each side.
struct Reach {
  bool is_causal;
  std::int64_t left;   ///< -1: no bound
  std::int64_t right;  ///< -1: no bound
};

Tensor visible(const Reach& reach, const Tensor& offset, std::int64_t queries, std::int64_t keys) {
  const auto options = offset.options();
  const Tensor position = at::arange(queries, options).reshape({1, 1, queries, 1}).add(offset.reshape({-1, 1, 1, 1}));
  const Tensor distance = position.sub(at::arange(keys, options).reshape({1, 1, 1, keys}));
  Tensor seen = distance.eq(distance);
  if (reach.is_causal) seen = at::logical_and(seen, distance.ge(0));
  if (reach.left >= 0) seen = at::logical_and(seen, distance.le(reach.left));
  if (reach.right >= 0) seen = at::logical_and(seen, distance.ge(-reach.right));
  return seen;
}

Tensor as_bias(const Tensor& seen) {
  return at::where(seen, scalar_like(0.0, seen.to(at::kFloat)), scalar_like(kMinusInfinity, seen.to(at::kFloat)));
}

void add_bias(std::optional<Tensor>& bias, const Tensor& other) { bias = bias ? bias->add(other) : other; }

// A mask that ends before the keys do hides the rest.
Tensor mask_bias(const Call& call, const Tensor& mask, std::int64_t keys) {
  call.require(mask.dim() >= 1 && mask.size(-1) <= keys, "the mask is longer than the keys");
  const bool is_bool = mask.scalar_type() == at::kBool;
  const Tensor bias = is_bool ? as_bias(mask) : mask.to(at::kFloat);
  return mask.size(-1) == keys ? bias : at::constant_pad_nd(bias, {0, keys - mask.size(-1)}, kMinusInfinity);
}

// ---------------------------------------------------------------- the computation

struct Scores {
  Tensor y;
  Tensor stage;  // what was asked for of the scores
};

// A query that sees nothing attends to nothing: zeros.
Tensor safe_softmax(const Tensor& scores) {
  const Tensor is_hidden = scores.eq(kMinusInfinity).all(-1, true);
  return at::softmax(scores, -1).masked_fill(is_hidden, 0);
}

Scores step_by_step(const Query& of, std::int64_t stage) {
  const Tensor q = raised(of.q);
  const Tensor k = raised(repeated(of.k, of.q.size(1)));
  const double root = std::sqrt(of.scale);
  Tensor scores = at::matmul(q.mul(root), k.mul(root).transpose(-1, -2));
  Scores result{{}, scores};
  if (of.softcap > 0) scores = scores.div(of.softcap).tanh().mul(of.softcap);
  if (stage == 1) result.stage = scores;
  if (of.bias) scores = scores.add(*of.bias);
  if (stage == 2) result.stage = scores;
  const Tensor weights = safe_softmax(scores);
  if (stage == 3) result.stage = weights;
  const c10::ScalarType type = of.q.scalar_type();
  result.y = at::matmul(weights, raised(repeated(of.v, of.q.size(1)))).to(type);
  result.stage = result.stage.to(type);
  return result;
}

Tensor fused(const Query& of) {
  const Tensor k = repeated(of.k, of.q.size(1));
  const Tensor v = repeated(of.v, of.q.size(1));
  std::optional<Tensor> bias;
  if (of.bias) bias = of.bias->to(of.q.scalar_type()).expand({of.q.size(0), of.q.size(1), of.q.size(2), k.size(2)});
  return at::scaled_dot_product_attention(of.q, k, v, bias, 0.0, false, of.scale);
}

// torch's kernel has neither a softcap nor a look at the scores; a negative scale has no root.
Scores attend(const Call& call, const Query& of, std::int64_t stage, bool wants_stage) {
  const std::int64_t heads = of.q.size(1);
  call.require(of.k.size(1) > 0 && heads % of.k.size(1) == 0 && of.v.size(1) == of.k.size(1),
               "heads of keys do not divide those of queries");
  call.require(of.q.size(3) == of.k.size(3) && of.k.size(2) == of.v.size(2), "queries, keys and values do not fit");
  if (of.softcap > 0 || wants_stage) return step_by_step(of, stage);
  return {fused(of), {}};
}

Tensor offset_of(const Call& call, std::int64_t queries, std::int64_t past) {
  const auto options = at::TensorOptions(at::kLong).device(call.device());
  const bool has_lengths = call.has(6) && !call.has(4);
  return has_lengths ? call.input(6).to(at::kLong).reshape({-1}).sub(queries) : at::full({1}, past, options);
}

void run_attention(Call& call) {
  Query of;
  of.q = by_heads(call, call.input(0), call.integer("q_num_heads", 0));
  of.k = by_heads(call, call.input(1), call.integer("kv_num_heads", 0));
  of.v = by_heads(call, call.input(2), call.integer("kv_num_heads", 0));
  const std::int64_t past = call.has(4) ? call.input(4).size(2) : 0;
  if (call.has(4)) of.k = at::cat({call.input(4), of.k}, 2);
  if (call.has(5)) of.v = at::cat({call.input(5), of.v}, 2);
  of.scale = call.number("scale", 1.0 / std::sqrt(static_cast<double>(of.q.size(3))));
  of.softcap = call.number("softcap", 0.0);
  const std::int64_t queries = of.q.size(2);
  const std::int64_t keys = of.k.size(2);
  if (call.has(3)) of.bias = mask_bias(call, call.input(3), keys);

  const Reach reach{call.flag("is_causal"), call.integer("left_window_size", -1),
                    call.integer("right_window_size", -1)};
  if (reach.is_causal || reach.left >= 0 || reach.right >= 0) {
    add_bias(of.bias, as_bias(visible(reach, offset_of(call, queries, past), queries, keys)));
  }
  if (call.has(6)) {
    const Tensor lengths = call.input(6).to(at::kLong).reshape({-1, 1, 1, 1});
    add_bias(of.bias, as_bias(at::arange(keys, lengths.options()).reshape({1, 1, 1, keys}).lt(lengths)));
  }
  const Scores scores = attend(call, of, call.integer("qk_matmul_output_mode", 0), call.wants(3));
  call.result(call.input(0).dim() == 3 ? without_heads(scores.y) : scores.y);
  call.result(of.k);
  call.result(of.v);
  if (scores.stage.defined()) call.result(scores.stage);
}

// ---------------------------------------------------------------- rotary embeddings

struct Rotation {
  Tensor cos;  // [batch or 1, length, half]
  Tensor sin;
  bool is_interleaved;
};

// x [batch, heads, length, size]: the first 2 * half of each head turn, the rest stays.
Tensor rotated(const Call& call, const Tensor& x, const Rotation& by) {
  const std::int64_t turning = 2 * by.cos.size(-1);
  call.require(turning <= x.size(-1), "the tables of angles are longer than a head");
  const Tensor part = raised(x.narrow(-1, 0, turning));
  const Tensor cos = raised(by.cos).unsqueeze(1);
  const Tensor sin = raised(by.sin).unsqueeze(1);
  const std::int64_t half = turning / 2;
  const Tensor a = by.is_interleaved ? part.slice(-1, 0, std::nullopt, 2) : part.narrow(-1, 0, half);
  const Tensor b = by.is_interleaved ? part.slice(-1, 1, std::nullopt, 2) : part.narrow(-1, half, half);
  const Tensor real = a.mul(cos).sub(b.mul(sin));
  const Tensor imaginary = b.mul(cos).add(a.mul(sin));
  const Tensor turned =
      by.is_interleaved ? at::stack({real, imaginary}, -1).flatten(-2) : at::cat({real, imaginary}, -1);
  const Tensor rest = x.narrow(-1, turning, x.size(-1) - turning);
  return at::cat({turned.to(x.scalar_type()), rest}, -1);
}

Tensor rows_at(const Call& call, const Tensor& table, const Tensor& positions) {
  const Tensor wide = positions.to(at::kLong);
  const bool is_inside =
      wide.numel() == 0 || (wide.min().item<std::int64_t>() >= 0 && wide.max().item<std::int64_t>() < table.size(0));
  call.require(is_inside, "a position is beyond the tables of angles");
  std::vector<std::int64_t> sizes = wide.sizes().vec();
  sizes.push_back(table.size(1));
  return table.index_select(0, wide.reshape({-1})).reshape(sizes);
}

void run_rotary_embedding(Call& call) {
  const Tensor& x = call.input(0);
  const Tensor heads = by_heads(call, x, call.integer("num_heads", 0));
  Rotation by{call.input(1), call.input(2), call.flag("interleaved")};
  if (call.has(3)) by = {rows_at(call, by.cos, call.input(3)), rows_at(call, by.sin, call.input(3)), by.is_interleaved};
  call.require(by.cos.dim() == 3, "the tables of angles must have rank 3 without positions");
  const std::int64_t turning = call.integer("rotary_embedding_dim", 0);
  if (turning > 0) {
    call.require(turning / 2 <= by.cos.size(-1), "rotary_embedding_dim is more than the tables of angles have");
    by.cos = by.cos.narrow(-1, 0, turning / 2);
    by.sin = by.sin.narrow(-1, 0, turning / 2);
  }
  const Tensor turned = rotated(call, heads, by);
  call.result(x.dim() == 3 ? without_heads(turned) : turned);
}

// Positions of com.microsoft: one start for all batches, or one number for each token.
Tensor positions_from(const Call& call, const Tensor& given, std::int64_t length) {
  if (given.numel() != 1 || (given.dim() == 2 && length == 1)) return given.to(at::kLong);
  return at::arange(length, at::TensorOptions(at::kLong).device(call.device()))
      .add(given.to(at::kLong).reshape({1, 1}));
}

void run_microsoft_rotary_embedding(Call& call) {
  const Tensor& x = call.input(0);
  const Tensor& cos = call.input(2);
  const std::int64_t turning = call.integer("rotary_embedding_dim", 0);
  std::int64_t count = call.integer("num_heads", 0);
  call.require(cos.dim() == 2 && cos.size(1) > 0, "the tables of angles must have rank 2 and hold angles");
  if (count == 0 && x.dim() == 3) count = x.size(2) / (2 * cos.size(1));
  const Tensor heads = by_heads(call, x, count);
  const Tensor positions = positions_from(call, call.input(1), heads.size(2));
  Rotation by{rows_at(call, cos, positions), rows_at(call, call.input(3), positions), call.flag("interleaved")};
  if (turning > 0) {
    by.cos = by.cos.narrow(-1, 0, std::min(turning / 2, by.cos.size(-1)));
    by.sin = by.sin.narrow(-1, 0, std::min(turning / 2, by.sin.size(-1)));
  }
  const Tensor turned = rotated(call, heads, by);
  call.result(x.dim() == 3 ? without_heads(turned) : turned);
}

// ---------------------------------------------------------------- GroupQueryAttention

// Keys and values follow a past as long as each sequence; `seqlens_k` is the length with the new tokens, less one.
void run_group_query_attention(Call& call) {
  const std::int64_t heads = call.integer("num_heads");
  const std::int64_t kv_heads = call.integer("kv_num_heads");
  const bool is_packed = !call.has(1);
  Tensor q = call.input(0);
  call.require(q.dim() == 3 && heads > 0 && kv_heads > 0, "its query must have rank 3");
  call.require(heads <= q.size(2) && kv_heads <= q.size(2), "its query has fewer elements than heads");

  Tensor k = is_packed ? Tensor() : call.input(1);
  Tensor v = is_packed ? Tensor() : call.input(2);
  if (is_packed) {
    const std::int64_t size = q.size(2) / (heads + 2 * kv_heads);
    k = q.narrow(2, heads * size, kv_heads * size);
    v = q.narrow(2, (heads + kv_heads) * size, kv_heads * size);
    q = q.narrow(2, 0, heads * size);
  }

  Query of;
  of.q = by_heads(call, q, heads);
  of.k = by_heads(call, k, kv_heads);
  of.v = by_heads(call, v, kv_heads);
  const std::int64_t length = of.q.size(2);
  const Tensor totals = call.input(5).to(at::kLong).reshape({-1}).add(1);  // tokens of each sequence
  const Tensor before = totals.sub(length).clamp_min(0);
  const auto options = totals.options();

  if (call.flag("do_rotary")) {
    const Tensor positions = before.unsqueeze(1).add(at::arange(length, options)).clamp_max(call.input(7).size(0) - 1);
    const Rotation by{rows_at(call, call.input(7), positions), rows_at(call, call.input(8), positions),
                      call.flag("rotary_interleaved")};
    of.q = rotated(call, of.q, by);
    of.k = rotated(call, of.k, by);
  }

  const std::int64_t past = call.has(3) ? call.input(3).size(2) : 0;
  const std::int64_t room = std::max({past, call.has(6) ? call.integer(6) : past + length, length});
  call.require(totals.max().item<std::int64_t>() <= room, "a sequence is longer than the cache");
  const auto stored = [&](std::size_t input, const Tensor& fresh) {
    const std::vector<std::int64_t> sizes{fresh.size(0), fresh.size(1), room, fresh.size(3)};
    Tensor cache = call.has(input) ? at::constant_pad_nd(call.input(input), {0, 0, 0, room - past}, 0)
                                   : at::zeros(sizes, fresh.options());
    const Tensor places = before.unsqueeze(1).add(at::arange(length, options)).clamp_max(room - 1);
    return cache.scatter(2, places.reshape({-1, 1, length, 1}).expand(fresh.sizes()), fresh);
  };
  of.k = stored(3, of.k);
  of.v = stored(4, of.v);

  of.scale = call.number("scale", 0.0);
  if (of.scale == 0.0) of.scale = 1.0 / std::sqrt(static_cast<double>(of.q.size(3)));
  of.softcap = call.number("softcap", 0.0);
  const std::int64_t window = call.integer("local_window_size", -1);
  of.bias = as_bias(visible({true, window > 0 ? window - 1 : -1, -1}, before, length, room));
  if (call.has(10)) add_bias(of.bias, mask_bias(call, call.input(10), room));

  call.result(without_heads(attend(call, of, 0, false).y));
  call.result(of.k);
  call.result(of.v);
}

// Heads packed into the last axis; the mask hides keys by an added bias.
void run_multi_head_attention(Call& call) {
  const std::int64_t heads = call.integer("num_heads");
  call.require(call.has(1) && call.has(2), "packed queries, keys and values cannot be run");

  const auto with_bias = [&](std::size_t i) {
    const Tensor& x = call.input(i);
    if (!call.has(3) || x.dim() == 4) return x;
    const Tensor& bias = call.input(3);
    const std::int64_t first = i == 0 ? 0 : call.input(0).size(2) + (i == 1 ? 0 : call.input(1).size(2));
    return x.add(bias.narrow(0, first, x.size(2)));
  };

  Query of;
  of.q = by_heads(call, with_bias(0), heads);
  of.k = by_heads(call, with_bias(1), heads);
  of.v = by_heads(call, with_bias(2), heads);
  if (call.has(6)) of.k = at::cat({call.input(6), of.k}, 2);
  if (call.has(7)) of.v = at::cat({call.input(7), of.v}, 2);
  of.scale = call.number("scale", 1.0 / std::sqrt(static_cast<double>(of.q.size(3))));
  of.softcap = 0;

  call.require(!call.has(4) || call.input(4).dim() == 2, "a key padding mask must have rank 2");
  if (call.has(4)) add_bias(of.bias, as_bias(call.input(4).ne(0).unsqueeze(1).unsqueeze(1)));
  if (call.has(5)) add_bias(of.bias, call.input(5).to(at::kFloat));
  if (call.flag("unidirectional")) {
    const Tensor offset =
        at::full({1}, of.k.size(2) - of.q.size(2), at::TensorOptions(at::kLong).device(call.device()));
    add_bias(of.bias, as_bias(visible({true, -1, -1}, offset, of.q.size(2), of.k.size(2))));
  }

  call.result(without_heads(attend(call, of, 0, false).y));
  call.result(of.k);
  call.result(of.v);
}

}  // namespace

void populate_attention(OperatorTable& table) {
  table.add("Attention", run_attention);
  table.add("RotaryEmbedding", run_rotary_embedding);
  table.add("com.microsoft::RotaryEmbedding", run_microsoft_rotary_embedding);
  table.add("com.microsoft::GroupQueryAttention", run_group_query_attention);
  table.add("com.microsoft::MultiHeadAttention", run_multi_head_attention);
}

}  // namespace exportguard::evaluator
