#include <algorithm>

#include "exportguard/optimizer/rewriter.h"
#include "optimizer/heads.h"
#include "optimizer/parts.h"

namespace exportguard::optimizer {
namespace {

// ------------------------------------------------------------------------------------------------ slices that make a
// split

/// A Slice and what it shows.
struct Piece {
  ir::Node* node = nullptr;
  Part part;
};

/// Every Slice of that axis of the value, and every Gather that is one.
std::vector<Piece> slices_of(const Facts& facts, const Value& value, std::int64_t axis) {
  std::vector<Piece> pieces;
  for (const ir::Use* use : value.uses()) {
    ir::Node& reader = use->user();
    const bool is_slice = reader.is("", "Slice") || reader.is("", "Gather");
    if (!is_slice || use->index() != 0) continue;
    const auto part = part_of(facts, &reader.output());
    if (part && part->axis == axis) pieces.push_back({&reader, *part});
  }
  return pieces;
}

bool before(const ir::Node* a, const ir::Node* b) { return a != b && a->is_before(*b); }

/// The slices cover the axis once, in order and without a gap, all in one graph.
bool is_partition(const std::vector<Piece>& pieces) {
  std::int64_t reached = 0;
  for (const Piece& piece : pieces) {
    if (&piece.node->graph() != &pieces.front().node->graph() || piece.part.step != 1 || piece.part.start != reached ||
        piece.part.count() == 0)
      return false;
    reached = piece.part.end;
  }
  return pieces.size() > 1 && reached == pieces.front().part.size;
}

Match match_partition(const Facts& facts, ir::Node& node) {
  const auto part = part_of(facts, &node.output());
  if (!part || part->start != 0) return Match::no("it does not begin at the start of a known axis");
  std::vector<Piece> pieces = slices_of(facts, *part->from, part->axis);
  std::ranges::sort(pieces, {}, [](const Piece& piece) { return piece.part.start; });
  if (!is_partition(pieces)) return Match::no("the slices are not all of the axis");
  return Match([pieces, axis = part->axis](Rewriter& rewriter) {
    // What reads a part stands behind its slice, so the split goes where the earliest of them is.
    ir::Node& earliest = *std::ranges::min_element(pieces, before, &Piece::node)->node;
    if (&earliest != &rewriter.root()) earliest.graph().move_before(rewriter.root(), earliest);

    std::vector<std::int64_t> sizes;
    std::vector<ir::Type> types;
    for (const Piece& piece : pieces) {
      sizes.push_back(piece.part.count());
      types.push_back(piece.node->output().type());
    }
    Value* operands[] = {pieces.front().part.from, &rewriter.ints(sizes)};
    const auto made = rewriter.op_many("Split", {operands[0], operands[1]}, {{"axis", axis}}, types);
    for (std::size_t i = 0; i < pieces.size(); ++i) rewriter.replace(pieces[i].node->output(), *made[i]);
  });
}

// ------------------------------------------------------------------------------------------------ parts of joined
// tensors

/// The operand of a Concat that the part is, all of it.
Value* operand_at(const ir::Node& concat, const Part& part) {
  std::int64_t reached = 0;
  for (std::size_t i = 0; i < concat.input_count(); ++i) {
    const auto size = dim(concat.input(i), part.axis);
    if (!size || !size->is_constant()) return nullptr;
    if (part.is_range(reached, reached + *size->constant())) return &concat.input(i);
    reached += *size->constant();
  }
  return nullptr;
}

Match match_joined(const Facts& facts, ir::Node& node) {
  const auto part = part_of(facts, &node.output());
  if (!part || part->count() == 0) return Match::no("it is no known part of one axis");
  const ir::Node* concat = producer_of(part->from, "Concat");
  const bool is_along = concat && axis_from_start(*part->from, int_attribute(*concat, "axis", 0)) == part->axis;
  Value* operand = is_along ? operand_at(*concat, *part) : nullptr;
  if (operand == nullptr || !same_shape(*operand, node.output())) return Match::no("it is no operand of a Concat");
  return Match([=, &node](Rewriter& rewriter) { rewriter.replace(node.output(), *operand); });
}

/// A packed projection whose heads come to the front before it is taken apart: what reads the parts can do without
/// that.
Match match_swapped(const Facts&, ir::Node& node) {
  ir::Node* swap = producer_of(node.find_input(0), "Transpose");
  const auto axis = axis_from_start(node.input(0), int_attribute(node, "axis", 0));
  if (!swaps_heads(swap) || !has_one_use(swap->output()) || !shape_of(swap->input(0)) || axis != 3)
    return Match::no("the operand is no Transpose that brings heads to the front");

  for (std::size_t i = 0; i < node.output_count(); ++i) {
    for (const ir::Use* use : node.output(i).uses()) {
      const ir::Node& reader = use->user();
      if (!reader.is("", "RotaryEmbedding") && !reader.is("", "Attention"))
        return Match::no("a part is read by something else than attention and its rotation");
    }
    if (!dim(node.output(i), 3)) return Match::no("the shapes are not known");
  }

  return Match([=, &node](Rewriter& rewriter) {
    std::vector<Value*> operands = {&swap->input(0)};
    if (Value* sizes = node.find_input(1)) operands.push_back(sizes);
    std::vector<ir::Type> types;
    for (std::size_t i = 0; i < node.output_count(); ++i) {
      ir::Shape shape = *shape_of(swap->input(0));
      shape[3] = *dim(node.output(i), 3);
      types.push_back(ir::Type::tensor(node.output(i).dtype(), std::move(shape)));
    }

    const auto parts = rewriter.op_many("Split", operands, attributes_of(node), types);
    for (std::size_t i = 0; i < parts.size(); ++i)
      rewriter.replace(node.output(i), rewriter.transpose(*parts[i], {0, 2, 1, 3}));
  });
}

/// One part of a last axis that was taken apart into parts of equal size.
Match match_part(const Facts& facts, ir::Node& node) {
  const ir::Node* split = producer_of(node.find_input(0), "Reshape");
  const auto at = facts.ints(node.find_input(1));
  if (!split || !at || !has_rank(node.input(1), 0)) return Match::no("it is not one entry of what was taken apart");
  Value& x = split->input(0);
  const auto count = dim(split->output(), -2);
  const auto size = dim(split->output(), -1);
  if (!shape_of(x) || shape_of(x)->empty() || !count || !count->is_constant() || !size || !size->is_constant())
    return Match::no("the sizes are not known");
  ir::Shape parts(shape_of(x)->begin(), shape_of(x)->end() - 1);
  parts.push_back(*count);
  parts.push_back(*size);
  const auto axis = static_cast<std::int64_t>(parts.size()) - 2;
  const bool is_part =
      *shape_of(split->output()) == parts && axis_from_start(split->output(), int_attribute(node, "axis", 0)) == axis;
  if (!is_part) return Match::no("the entry is no part of the last axis");
  const ir::Dim& whole = shape_of(x)->back();
  if (whole != *count * *size) return Match::no("the parts are not known to be all of the axis");  // of no sample
  const std::int64_t place = at->front() < 0 ? at->front() + *count->constant() : at->front();
  if (place < 0 || place >= *count->constant()) return Match::no("there is no such part");
  return Match([=, &node, &x, length = *size->constant()](Rewriter& rewriter) {
    rewriter.replace(node.output(), rewriter.op("Slice",
                                                {&x, &rewriter.ints({place * length}),
                                                 &rewriter.ints({(place + 1) * length}), &rewriter.ints({axis})},
                                                {}, node.output().type()));
  });
}

/// Operands without an element along the axis.
Match match_empty_operand(const Facts&, ir::Node& node) {
  const auto axis = axis_from_start(node.output(), int_attribute(node, "axis", 0));
  std::vector<Value*> kept;
  for (std::size_t i = 0; axis && i < node.input_count(); ++i) {
    if (dim(node.input(i), *axis) != ir::Dim(0)) kept.push_back(&node.input(i));
  }
  if (kept.empty() || kept.size() == node.input_count()) return Match::no("every operand may have elements");
  return Match([=, &node](Rewriter& rewriter) {
    rewriter.replace(node.output(), rewriter.op("Concat", kept, {{"axis", *axis}}, node.output().type()));
  });
}

}  // namespace

void populate_slices(PatternTable& table) {
  table.add({.name = "slices_as_split",
             .matches = "`Slice`s, and `Gather`s of one position, that take an axis apart, every element once",
             .makes = "one `Split`",
             .roots = {"Slice", "Gather"},
             .match = match_partition,
             .stage = Stage::kFinish});
  table.add({.name = "slice_of_concat",
             .matches = "`Slice` that cuts one operand out of a `Concat`",
             .makes = "that operand",
             .roots = {"Slice"},
             .match = match_joined});
  table.add(
      {.name = "split_of_swapped",
       .matches = "`Split` of heads that a `Transpose` brought to the front, for `RotaryEmbedding` and `Attention`",
       .makes = "the `Split` of what the `Transpose` reads; a `Transpose` of each part",
       .roots = {"Split"},
       .match = match_swapped,
       .stage = Stage::kFuse});
  table.add({.name = "gather_of_split_axis",
             .matches = "`Gather` of one of the equal parts that `Reshape` made of a last axis",
             .makes = "`Slice` of that axis",
             .roots = {"Gather"},
             .match = match_part});
  table.add({.name = "concat_of_empty",
             .matches = "`Concat` with operands that have no element along its axis",
             .makes = "`Concat` of the others",
             .roots = {"Concat"},
             .match = match_empty_operand});
}

}  // namespace exportguard::optimizer
