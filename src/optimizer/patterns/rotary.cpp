#include <algorithm>
#include <limits>

#include "exportguard/optimizer/rewriter.h"
#include "optimizer/heads.h"

namespace exportguard::optimizer {
namespace {

constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();

/// Part of the last axis of `from`: [start, end).
struct Part {
  Value* from = nullptr;
  std::int64_t start = 0;
  std::int64_t end = 0;
};

std::optional<Part> part_of_slice(const Facts& facts, const ir::Node& slice) {
  const auto start = facts.ints(slice.find_input(1));
  const auto end = facts.ints(slice.find_input(2));
  const auto axis = facts.ints(slice.find_input(3));
  Value& from = slice.input(0);
  const auto size = dim(from, -1);
  const bool is_plain = slice.input_count() < 5 || facts.is_number(slice.find_input(4), 1);
  if (!start || !end || !axis || start->size() != 1 || !size || !size->is_constant() || !is_plain) return std::nullopt;
  if (axis_from_start(from, axis->front()) != axis_from_start(from, -1)) return std::nullopt;
  const auto clamped = [&](std::int64_t i) {
    return i == kEnd ? *size->constant()
                     : std::clamp<std::int64_t>(i < 0 ? i + *size->constant() : i, 0, *size->constant());
  };
  return Part{&from, clamped(start->front()), clamped(end->front())};
}

std::optional<Part> part_of_split(const Value& value) {
  const ir::Node& split = *value.producer();
  Value& from = split.input(0);
  const auto axis = axis_from_start(from, int_attribute(split, "axis", 0));
  if (!axis || axis != axis_from_start(from, -1)) return std::nullopt;
  Part part{&from, 0, 0};
  for (std::size_t i = 0; i <= value.output_index(); ++i) {
    const auto size = dim(split.output(i), -1);
    if (!size || !size->is_constant()) return std::nullopt;
    part.start = part.end;
    part.end += *size->constant();
  }
  return part;
}

std::optional<Part> part_of(const Facts& facts, const Value* value) {
  if (const ir::Node* slice = producer_of(value, "Slice")) return part_of_slice(facts, *slice);
  return producer_of(value, "Split") ? part_of_split(*value) : std::nullopt;
}

bool is_part(const std::optional<Part>& part, const Value* from, std::int64_t start, std::int64_t end) {
  return part && part->from == from && part->start == start && part->end == end;
}

/// The operand x of [-x[n/2:], x[:n/2]]; null if the value is something else.
Value* half_turned(const Facts& facts, const Value* value) {
  const ir::Node* concat = producer_of(value, "Concat");
  if (!concat || concat->input_count() != 2) return nullptr;
  const ir::Node* negated = producer_of(concat->find_input(0), "Neg");
  const auto upper = negated ? part_of(facts, negated->find_input(0)) : std::nullopt;
  if (!upper) return nullptr;
  const std::int64_t size = *dim(*upper->from, -1)->constant();
  const bool is_last = axis_from_start(*value, int_attribute(*concat, "axis", 0)) == axis_from_start(*value, -1);
  const bool is_turned = is_last && size % 2 == 0 && is_part(upper, upper->from, size / 2, size) &&
                         is_part(part_of(facts, concat->find_input(1)), upper->from, 0, size / 2);
  return is_turned ? upper->from : nullptr;
}

/// The value whose repetition along the last axis this is.
Value* half_of(const Value* value) {
  const ir::Node* concat = producer_of(value, "Concat");
  const bool is_pair = concat && concat->input_count() == 2 && concat->find_input(0) == concat->find_input(1);
  if (!is_pair || axis_from_start(*value, int_attribute(*concat, "axis", 0)) != axis_from_start(*value, -1))
    return nullptr;
  return concat->find_input(0);
}

/// x · cos + turned(x) · sin with tables that repeat their first half.
struct Rotation {
  Value* x = nullptr;
  Value* cos = nullptr;
  Value* sin = nullptr;
};

std::optional<Rotation> rotation_of(const Facts& facts, const ir::Node& straight, const ir::Node& turned) {
  for (std::size_t i = 0; i < 2; ++i) {
    Value* x = half_turned(facts, turned.find_input(i));
    if (x == nullptr) continue;
    Value* cos = half_of(other_operand(straight, x));
    Value* sin = half_of(turned.find_input(1 - i));
    if (cos && sin) return Rotation{x, cos, sin};
  }
  return std::nullopt;
}

/// Which axis of a rotated tensor of rank 4 is the sequence: 2 with the heads before it, 1 with the heads behind.
enum class Layout : std::uint8_t { kHeadsFirst = 2, kHeadsLast = 1 };

/// A table [1 or batch, sequence, half] with an axis of size 1 where the heads are, or without the leading axes.
struct Table {
  Value* value;
  bool has_batch;  ///< it has a size for each sample
};

std::optional<Table> table_for(Value* value, const Value& x, Layout layout) {
  const auto& shape = shape_of(*value);
  if (!shape || shape->empty() || shape->size() > 4) return std::nullopt;
  ir::Shape padded(4 - shape->size(), ir::Dim(1));
  padded.insert(padded.end(), shape->begin(), shape->end());
  const auto sequence = static_cast<std::size_t>(layout);
  const ir::Shape& of_x = *shape_of(x);
  const bool fits = padded[3 - sequence] == ir::Dim(1) && padded[sequence] == of_x[sequence] &&
                    padded[3] + padded[3] == of_x[3] && (padded[0] == ir::Dim(1) || padded[0] == of_x[0]);
  return fits ? std::optional(Table{value, padded[0] == of_x[0]}) : std::nullopt;
}

std::optional<Layout> layout_of(const Rotation& rotation) {
  for (const Layout layout : {Layout::kHeadsFirst, Layout::kHeadsLast}) {
    if (table_for(rotation.cos, *rotation.x, layout) && table_for(rotation.sin, *rotation.x, layout)) return layout;
  }
  return std::nullopt;
}

/// As the operator wants it: [batch, sequence, half].
Value& cache_of(Rewriter& rewriter, const Table& table, Value& x, Layout layout) {
  const ir::Shape& of_x = *shape_of(x);
  const ir::Dim sequence = of_x[static_cast<std::size_t>(layout)];
  const ir::Dim half = shape_of(*table.value)->back();
  Value* cache = table.value;
  const std::size_t rank = *cache->type().rank();
  const ir::Shape one = {table.has_batch ? of_x[0] : ir::Dim(1), sequence, half};
  if (rank == 4) {
    const auto heads = static_cast<std::int64_t>(3 - static_cast<std::size_t>(layout));
    cache = &rewriter.op("Squeeze", {cache, &rewriter.ints({heads})}, {}, ir::Type::tensor(cache->dtype(), one));
  } else if (rank == 2) {
    cache = &rewriter.op("Unsqueeze", {cache, &rewriter.ints({0})}, {}, ir::Type::tensor(cache->dtype(), one));
  }
  if (table.has_batch) return *cache;
  Value& target = rewriter.op("Concat", {&rewriter.size(x, 0), &rewriter.ints({1, 1})}, {{"axis", 0}},
                              ir::Type::tensor(DType::kInt64, ir::Shape{3}));
  return rewriter.op("Expand", {cache, &target}, {},
                     ir::Type::tensor(cache->dtype(), ir::Shape{of_x[0], sequence, half}));
}

void write_rotation(Rewriter& rewriter, const Rotation& rotation, Layout layout) {
  Value& x = *rotation.x;
  Value& cos = cache_of(rewriter, *table_for(rotation.cos, x, layout), x, layout);
  Value& sin = cache_of(rewriter, *table_for(rotation.sin, x, layout), x, layout);
  Value& old = rewriter.root().output();
  if (layout == Layout::kHeadsFirst)
    return rewriter.replace(old, rewriter.op("RotaryEmbedding", {&x, &cos, &sin}, {}, old.type()));
  Value& joined = heads_joined(rewriter, x);
  Value& turned = rewriter.op("RotaryEmbedding", {&joined, &cos, &sin}, {{"num_heads", *(*shape_of(x))[2].constant()}},
                              joined.type());
  rewriter.replace(old, rewriter.reshape(turned, *shape_of(x)));
}

bool has_known_heads(const Value& x) {
  const auto& shape = shape_of(x);
  if (!shape || shape->size() != 4) return false;
  const auto size = (*shape)[3].constant();
  return size && *size > 0;
}

Match match_halves(const Facts& facts, ir::Node& node) {
  const ir::Node* a = producer_of(node.find_input(0), "Mul");
  const ir::Node* b = producer_of(node.find_input(1), "Mul");
  if (!a || !b) return Match::no("it is no sum of products");
  auto rotation = rotation_of(facts, *a, *b);
  if (!rotation) rotation = rotation_of(facts, *b, *a);
  if (!rotation) return Match::no("no factor is the other one turned, with tables that repeat their half");
  const Value& x = *rotation->x;
  const bool has_dtype = x.dtype() == DType::kFloat32 || is_narrow_float(x.dtype());
  if (!has_known_heads(x) || !has_dtype || !same_shape(x, node.output()))
    return Match::no("x must be a float tensor of rank 4 with a known last axis");
  const auto layout = layout_of(*rotation);
  if (!layout) return Match::no("the tables do not go with the sequence axis of x");
  if (*layout == Layout::kHeadsLast && !(*shape_of(x))[2].is_constant())
    return Match::no("the number of heads is not known");
  return Match([=, r = *rotation, l = *layout](Rewriter& rewriter) { write_rotation(rewriter, r, l); });
}

/// [rotated(x[..., :n]), x[..., n:]]
Match match_partial(const Facts& facts, ir::Node& node) {
  if (node.input_count() != 2) return Match::no("it does not join two parts");
  ir::Node* rotary = producer_of(node.find_input(0), "RotaryEmbedding");
  if (!rotary || !has_one_use(rotary->output())) return Match::no("the first part is no rotation");
  const auto turned = part_of(facts, rotary->find_input(0));
  const auto rest = part_of(facts, node.find_input(1));
  if (!turned || !rest || turned->from != rest->from) return Match::no("the parts are not of one tensor");
  Value* x = turned->from;
  const std::int64_t size = *dim(*x, -1)->constant();
  const bool is_whole =
      turned->start == 0 && rest->start == turned->end && rest->end == size && size % 2 == 0 && has_rank(*x, 4);
  const bool is_last = axis_from_start(node.output(), int_attribute(node, "axis", 0)) == 3;
  if (!is_whole || !is_last) return Match::no("the parts are not all of the last axis");
  return Match([=, &node, count = turned->end](Rewriter& rewriter) {
    rewriter.replace(node.output(), rewriter.op("RotaryEmbedding", {x, &rotary->input(1), &rotary->input(2)},
                                                {{"interleaved", int_attribute(*rotary, "interleaved", 0)},
                                                 {"rotary_embedding_dim", count}},
                                                node.output().type()));
  });
}

/// The rotation of [batch, sequence, heads, size] as it came from the projection; the Transpose comes behind it.
Match match_transposed(const Facts&, ir::Node& node) {
  const ir::Node* swap = node.input(0).producer();
  if (!swaps_heads(swap)) return Match::no("the heads are not brought to the front");
  Value& x = swap->input(0);
  const auto& shape = shape_of(x);
  const bool is_known = shape && (*shape)[2].constant().value_or(0) > 0 && (*shape)[3].constant().value_or(0) > 0;
  if (!is_known) return Match::no("the number of heads or their size is not known");
  return Match([=, &node, &x](Rewriter& rewriter) {
    Value& joined = heads_joined(rewriter, x);
    Value& turned = rewriter.op("RotaryEmbedding", {&joined, &node.input(1), &node.input(2)},
                                {{"num_heads", *(*shape_of(x))[2].constant()},
                                 {"interleaved", int_attribute(node, "interleaved", 0)},
                                 {"rotary_embedding_dim", int_attribute(node, "rotary_embedding_dim", 0)}},
                                joined.type());
    rewriter.replace(node.output(), rewriter.transpose(rewriter.reshape(turned, *shape_of(x)), {0, 2, 1, 3}));
  });
}

}  // namespace

void populate_rotary(PatternTable& table) {
  table.add({.name = "rotary_embedding",
             .matches = "x · cos + [-x₂, x₁] · sin for the halves x₁, x₂ of the last axis, tables of the form [c, c]; "
                        "heads before or "
                        "behind the sequence",
             .makes = "`RotaryEmbedding` with the half tables",
             .roots = {"Add"},
             .match = match_halves,
             .stage = Stage::kFuse,
             .opset = 23});
  table.add({.name = "rotary_embedding_partial",
             .matches = "the first part of the last axis rotated, joined with the rest as it is",
             .makes = "`RotaryEmbedding` with `rotary_embedding_dim`",
             .roots = {"Concat"},
             .match = match_partial,
             .stage = Stage::kFuse,
             .opset = 23});
  table.add({.name = "rotary_embedding_transposed",
             .matches = "`RotaryEmbedding` of [batch, sequence, heads, size] with the heads brought to the front",
             .makes = "`RotaryEmbedding` of [batch, sequence, heads · size]; the `Transpose` comes behind it",
             .roots = {"RotaryEmbedding"},
             .match = match_transposed,
             .stage = Stage::kFuse,
             .opset = 23});
}

}  // namespace exportguard::optimizer
