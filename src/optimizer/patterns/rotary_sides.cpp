#include "exportguard/optimizer/rewriter.h"
#include "optimizer/parts.h"
#include "optimizer/rotations.h"

namespace exportguard::optimizer {
namespace {

/// The first or the second of the numbers that turn together, for every two of the last axis of x.
struct Side {
  Value* from = nullptr;  ///< x, or x with its last axis as [n, 2]
  bool is_second = false;
  bool is_interleaved = false;

  bool operator==(const Side&) const = default;
};

/// Half of the last axis, or every second number of it.
std::optional<Side> side_of_axis(const Facts& facts, const Value* value) {
  const auto part = part_of(facts, value);
  const bool is_even = part && part->axis == last_axis(*part->from) && part->size > 0 && part->size % 2 == 0;
  if (!is_even) return std::nullopt;
  const std::int64_t half = part->size / 2;
  if (part->is_range(0, half)) return Side{part->from, false, false};
  if (part->is_range(half, part->size)) return Side{part->from, true, false};
  const bool is_every_second = part->step == 2 && part->start < 2 && part->count() == half;
  return is_every_second ? std::optional(Side{part->from, part->start == 1, true}) : std::nullopt;
}

/// A Gather of one position, which takes the axis away.
std::optional<Part> picked_by_gather(const Facts& facts, const ir::Node& gather) {
  const auto at = facts.ints(gather.find_input(1));
  Value& from = gather.input(0);
  const auto axis = axis_from_start(from, int_attribute(gather, "axis", 0));
  const auto size = axis ? dim(from, *axis)->constant() : std::nullopt;
  if (!at || at->size() != 1 || !has_rank(gather.input(1), 0) || !size) return std::nullopt;
  const std::int64_t start = at->front() < 0 ? at->front() + *size : at->front();
  return Part{&from, *axis, start, start + 1, 1, *size};
}

/// One position of an axis, behind which the axis of size 1 is taken away.
std::optional<Part> picked_and_squeezed(const Facts& facts, const Value& value) {
  const ir::Node* node = value.producer();
  const bool drops_axes = node && (node->is("", "Squeeze") || node->is("", "Reshape"));
  const auto part = drops_axes ? part_of(facts, node->find_input(0)) : std::nullopt;
  if (!part || part->count() != 1 || !shape_of(value) || !shape_of(node->input(0))) return std::nullopt;
  ir::Shape with = *shape_of(value);
  with.emplace_back(1);
  return *shape_of(node->input(0)) == with ? part : std::nullopt;
}

/// One of each pair, x having its last axis as [n, 2].
std::optional<Side> side_of_pairs(const Facts& facts, const Value& value) {
  const ir::Node* gather = producer_of(&value, "Gather");
  const auto part = gather ? picked_by_gather(facts, *gather) : picked_and_squeezed(facts, value);
  const bool is_one_of_two = part && part->axis == last_axis(*part->from) && part->size == 2 && part->start < 2;
  return is_one_of_two ? std::optional(Side{part->from, part->start == 1, true}) : std::nullopt;
}

std::optional<Side> side_of(const Facts& facts, const Value* value) {
  const auto side = side_of_axis(facts, value);
  return side || value == nullptr ? side : side_of_pairs(facts, *value);
}

/// A side times a half table.
struct Term {
  Side side;
  const Value* factor = nullptr;  ///< the side as a value
  Value* table = nullptr;
};

std::optional<Term> term_of(const Facts& facts, const Value* value) {
  const ir::Node* product = producer_of(value, "Mul");
  for (std::size_t i = 0; product && i < 2; ++i) {
    const auto side = side_of(facts, product->find_input(i));
    if (side) return Term{*side, product->find_input(i), product->find_input(1 - i)};
  }
  return std::nullopt;
}

/// The rotation whose numbers these are: x₁ · cos - x₂ · sin and x₂ · cos + x₁ · sin.
std::optional<Rotation> rotation_of(const Facts& facts, const Value* first, const Value* second) {
  const ir::Node* difference = producer_of(first, "Sub");
  const ir::Node* sum = producer_of(second, "Add");
  const auto straight = difference ? term_of(facts, difference->find_input(0)) : std::nullopt;
  const auto crossed = difference ? term_of(facts, difference->find_input(1)) : std::nullopt;
  if (!straight || !crossed || !sum) return std::nullopt;
  const Side& side = straight->side;
  const bool are_sides = !side.is_second && crossed->side == Side{side.from, true, side.is_interleaved};
  for (std::size_t i = 0; are_sides && i < 2; ++i) {
    const auto to_second = term_of(facts, sum->find_input(i));
    const auto to_first = term_of(facts, sum->find_input(1 - i));
    const bool is_turned = to_second && to_first && to_second->side == crossed->side && to_first->side == side &&
                           to_second->table == straight->table && to_first->table == crossed->table;
    const auto cos = is_turned ? whole_table(*straight->table) : std::nullopt;
    const auto sin = is_turned ? whole_table(*crossed->table) : std::nullopt;
    if (!cos || !sin || !shape_of(*straight->factor)) continue;
    ir::Shape shape = *shape_of(*straight->factor);
    shape.back() = shape.back() * ir::Dim(2);
    return Rotation{side.from, std::move(shape), *cos, *sin, side.is_interleaved};
  }
  return std::nullopt;
}

/// [first, second] of the halves of x, or [..., n, 2] with the two of each pair beside each other.
Match match_sides(const Facts& facts, ir::Node& node) {
  if (node.input_count() != 2 || !joins_last_axis(node.output(), node))
    return Match::no("it does not join two parts along the last axis");
  const auto halves = rotation_of(facts, node.find_input(0), node.find_input(1));
  if (halves && !halves->is_interleaved) return match_rotation(node, *halves);
  const auto pairs = rotation_of(facts, before_last_axis(node.find_input(0)), before_last_axis(node.find_input(1)));
  if (pairs && pairs->is_interleaved) return match_rotation(node, *pairs);
  return Match::no("the parts are not x₁ · cos - x₂ · sin and x₂ · cos + x₁ · sin");
}

}  // namespace

void populate_rotary_sides(PatternTable& table) {
  table.add({.name = "rotary_embedding_sides",
             .matches = "[x₁ · cos - x₂ · sin, x₂ · cos + x₁ · sin] for the halves x₁, x₂ of the last axis, or for the "
                        "two of each pair, put back beside each other",
             .makes = "`RotaryEmbedding` with these tables",
             .roots = {"Concat"},
             .match = match_sides,
             .stage = Stage::kFuse,
             .opset = 23});
}

}  // namespace exportguard::optimizer
