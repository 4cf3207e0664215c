#include "exportguard/optimizer/rewriter.h"
#include "optimizer/heads.h"
#include "optimizer/parts.h"
#include "optimizer/rotations.h"

namespace exportguard::optimizer {
namespace {

bool is_part_of_last(const std::optional<Part>& part) { return part && part->axis == last_axis(*part->from); }

/// The operand x of [-x[n/2:], x[:n/2]]; null if the value is something else.
Value* half_turned(const Facts& facts, const Value* value) {
  const ir::Node* concat = producer_of(value, "Concat");
  if (!concat || concat->input_count() != 2 || !joins_last_axis(*value, *concat)) return nullptr;
  const ir::Node* negated = producer_of(concat->find_input(0), "Neg");
  const auto upper = negated ? part_of(facts, negated->find_input(0)) : std::nullopt;
  const auto lower = part_of(facts, concat->find_input(1));
  if (!is_part_of_last(upper) || !is_part_of_last(lower) || upper->from != lower->from) return nullptr;
  const std::int64_t half = upper->size / 2;
  const bool is_turned =
      upper->size % 2 == 0 && upper->is_range(half, upper->size) && lower->is_range(0, half) && half > 0;
  return is_turned ? upper->from : nullptr;
}

/// [..., n, 2] as [..., 2 n]: the operand.
const Value* before_joined_pairs(const Value* value) {
  const ir::Node* node = producer_of(value, "Reshape");
  if (node == nullptr || !shape_of(*value) || !shape_of(node->input(0))) return nullptr;
  const ir::Shape& pairs = *shape_of(node->input(0));
  if (pairs.size() < 2 || pairs.back() != ir::Dim(2) || pairs.size() != shape_of(*value)->size() + 1) return nullptr;
  ir::Shape wanted(pairs.begin(), pairs.end() - 2);
  wanted.push_back(pairs[pairs.size() - 2] * ir::Dim(2));
  return *shape_of(*value) == wanted ? &node->input(0) : nullptr;
}

/// The operand x of [-x1, x0, -x3, x2, …]; null if the value is something else.
Value* pairs_turned(const Facts& facts, const Value* value) {
  const Value* pairs = before_joined_pairs(value);
  const ir::Node* concat = pairs ? producer_of(pairs, "Concat") : nullptr;
  if (!concat || concat->input_count() != 2 || !joins_last_axis(*pairs, *concat)) return nullptr;
  const ir::Node* negated = producer_of(before_last_axis(concat->find_input(0)), "Neg");
  const auto odd = negated ? part_of(facts, negated->find_input(0)) : std::nullopt;
  const auto even = part_of(facts, before_last_axis(concat->find_input(1)));
  if (!is_part_of_last(odd) || !is_part_of_last(even) || odd->from != even->from) return nullptr;
  const bool is_turned = odd->size > 0 && odd->size % 2 == 0 && odd->step == 2 && even->step == 2 && odd->start == 1 &&
                         even->start == 0 && odd->end == odd->size && even->end >= odd->size - 1;
  return is_turned ? odd->from : nullptr;
}

/// The value whose repetition along the last axis this is.
std::optional<Half> repeated(Value* value) {
  const ir::Node* concat = producer_of(value, "Concat");
  const bool is_pair = concat && concat->input_count() == 2 && concat->find_input(0) == concat->find_input(1);
  return is_pair && joins_last_axis(*value, *concat) ? whole_table(concat->input(0)) : std::nullopt;
}

/// What gets axes of size 1 in front of its last one, once or several times.
const Value* before_inner_axes(const Value* value) {
  while (const ir::Node* node = producer_of(value, "Unsqueeze")) {
    const bool keeps_last = dim(*value, -1) && dim(*value, -1) == dim(node->input(0), -1);
    if (!keeps_last || dim(*value, -1) == ir::Dim(1)) break;
    value = &node->input(0);
  }
  return value;
}

/// The value whose elements are here twice, one beside the other.
std::optional<Half> doubled(Value* value) {
  if (value == nullptr || !shape_of(*value)) return std::nullopt;
  const ir::Node* stretched = producer_of(before_joined_pairs(before_inner_axes(value)), "Expand");
  Value* single = stretched ? before_last_axis(stretched->find_input(0)) : nullptr;
  if (single == nullptr || !shape_of(stretched->output())) return std::nullopt;
  ir::Shape wanted = *shape_of(stretched->input(0));
  wanted.back() = ir::Dim(2);
  auto half = whole_table(*single);
  if (!half || *shape_of(stretched->output()) != wanted) return std::nullopt;
  half->shape = *shape_of(*value);
  half->shape.back() = half->given.back();
  return half;
}

/// Half of a table that holds each number twice.
std::optional<Half> half_of(const Facts& facts, Value* table, bool is_interleaved) {
  auto half = is_interleaved ? doubled(table) : repeated(table);
  return half ? half : half_of_constant(facts, table, is_interleaved);
}

/// x · cos + turned(x) · sin with tables that hold each number twice.
std::optional<Rotation> rotation_of(const Facts& facts, const ir::Node& straight, const ir::Node& turned) {
  for (const bool is_interleaved : {false, true}) {
    for (std::size_t i = 0; i < 2; ++i) {
      Value* x = is_interleaved ? pairs_turned(facts, turned.find_input(i)) : half_turned(facts, turned.find_input(i));
      if (x == nullptr || !shape_of(*x)) continue;
      auto cos = half_of(facts, other_operand(straight, x), is_interleaved);
      auto sin = half_of(facts, turned.find_input(1 - i), is_interleaved);
      if (cos && sin) return Rotation{x, *shape_of(*x), std::move(*cos), std::move(*sin), is_interleaved};
    }
  }
  return std::nullopt;
}

Match match_halves(const Facts& facts, ir::Node& node) {
  const ir::Node* a = producer_of(node.find_input(0), "Mul");
  const ir::Node* b = producer_of(node.find_input(1), "Mul");
  if (!a || !b) return Match::no("it is no sum of products");
  auto rotation = rotation_of(facts, *a, *b);
  if (!rotation) rotation = rotation_of(facts, *b, *a);
  if (!rotation) return Match::no("no factor is the other one turned, with tables that hold each number twice");
  if (!same_shape(*rotation->from, node.output())) return Match::no("the tables stretch x");
  return match_rotation(node, *rotation);
}

/// A rotation of four axes, or one of [batch, sequence, heads · size] between the reshapes to it and back.
struct Turned {
  ir::Node* rotary = nullptr;
  Value* x = nullptr;      ///< of four axes
  std::int64_t heads = 0;  ///< 0: x has the heads in front
};

std::optional<Turned> turned_of(const Value* value) {
  ir::Node* rotary = producer_of(value, "RotaryEmbedding");
  if (rotary) return has_one_use(*value) ? std::optional(Turned{rotary, &rotary->input(0), 0}) : std::nullopt;
  const ir::Node* split = producer_of(value, "Reshape");
  rotary = split ? producer_of(split->find_input(0), "RotaryEmbedding") : nullptr;
  const ir::Node* joined = rotary ? producer_of(rotary->find_input(0), "Reshape") : nullptr;
  const bool is_between = joined && has_one_use(*value) && has_one_use(rotary->output()) &&
                          same_shape(joined->input(0), *value) && has_rank(*value, 4);
  const std::int64_t heads = rotary ? int_attribute(*rotary, "num_heads", 0) : 0;
  if (!is_between || heads == 0 || dim(*value, 2) != ir::Dim(heads)) return std::nullopt;
  return Turned{rotary, &joined->input(0), heads};
}

/// The tables and, if it has them, the positions of a rotation, for another tensor.
std::vector<Value*> operands_with(const ir::Node& rotary, Value& x) {
  std::vector<Value*> operands = {&x};
  for (std::size_t i = 1; i < rotary.input_count(); ++i) operands.push_back(rotary.find_input(i));
  return operands;
}

/// [rotated(x[..., :n]), x[..., n:]]
Match match_partial(const Facts& facts, ir::Node& node) {
  if (node.input_count() != 2) return Match::no("it does not join two parts");
  const auto turned = turned_of(node.find_input(0));
  if (!turned) return Match::no("the first part is no rotation");

  const auto first = part_of(facts, turned->x);
  const auto rest = part_of(facts, node.find_input(1));
  if (!is_part_of_last(first) || !is_part_of_last(rest) || first->from != rest->from)
    return Match::no("the parts are not of one tensor");

  Value* x = first->from;
  const bool is_whole = first->is_range(0, first->end) && rest->is_range(first->end, rest->size) &&
                        first->end % 2 == 0 && has_rank(*x, 4);
  if (!is_whole || !joins_last_axis(node.output(), node)) return Match::no("the parts are not all of the last axis");
  const std::int64_t turns = int_attribute(*turned->rotary, "rotary_embedding_dim", 0);
  if (turns != 0 && turns != first->end) return Match::no("the first part is not turned as a whole");

  return Match([=, &node](Rewriter& rewriter) {
    const ir::Node& rotary = *turned->rotary;
    std::vector<ir::NamedAttribute> attributes = turning(int_attribute(rotary, "interleaved", 0) != 0);
    attributes.emplace_back("rotary_embedding_dim", first->end);
    if (turned->heads > 0) attributes.emplace_back("num_heads", turned->heads);
    Value& operand = turned->heads > 0 ? heads_joined(rewriter, *x) : *x;
    Value& made = rewriter.op("RotaryEmbedding", operands_with(rotary, operand), std::move(attributes), operand.type());
    rewriter.replace(node.output(), turned->heads > 0 ? rewriter.reshape(made, *shape_of(*x)) : made);
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
    Value& turned = rewriter.op("RotaryEmbedding", operands_with(node, joined),
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
             .matches =
                 "x · cos + [-x₂, x₁] · sin for the halves x₁, x₂ of the last axis, tables of the form [c, c]; or "
                 "with each number turned with its neighbour, the tables holding each number twice in a row; "
                 "heads before or behind the sequence; also with constant tables of that form, looked up or cut",
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
