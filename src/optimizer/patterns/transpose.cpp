#include <algorithm>

#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

using Permutation = std::vector<std::int64_t>;

/// The permutation of a Transpose; without the attribute the axes are reversed. Nothing if it is none of the axes.
std::optional<Permutation> permutation_of(const ir::Node& node) {
  const auto rank = node.input(0).type().rank();
  if (const auto* given = find_ints_attribute(node, "perm")) {
    Permutation sorted = *given;
    std::ranges::sort(sorted);
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      if (sorted[i] != static_cast<std::int64_t>(i)) return std::nullopt;
    }
    return rank.value_or(sorted.size()) == sorted.size() ? std::optional(*given) : std::nullopt;
  }
  if (!rank) return std::nullopt;
  Permutation reversed(*rank);
  for (std::size_t i = 0; i < *rank; ++i) reversed[i] = static_cast<std::int64_t>(*rank - 1 - i);
  return reversed;
}

Match match_identity(const Facts&, ir::Node& node) {
  const auto permutation = permutation_of(node);
  if (!permutation || !std::ranges::is_sorted(*permutation)) return Match::no("it moves an axis");
  return Match([=, &node](Rewriter& rewriter) { rewriter.replace(node.output(), node.input(0)); });
}

Match match_chain(const Facts&, ir::Node& node) {
  const ir::Node* before = producer_of(&node.input(0), "Transpose");
  if (before == nullptr) return Match::no("the operand is not a Transpose");
  const auto inner = permutation_of(*before);
  const auto outer = permutation_of(node);
  if (!inner || !outer || inner->size() != outer->size()) return Match::no("the permutations are not known");
  Permutation both;
  for (const std::int64_t axis : *outer) both.push_back((*inner)[static_cast<std::size_t>(axis)]);
  return Match([=, &node](Rewriter& rewriter) {
    Value& from = before->input(0);
    if (std::ranges::is_sorted(both)) return rewriter.replace(node.output(), from);
    rewriter.replace(node.output(), rewriter.op("Transpose", {&from}, {{"perm", both}}, node.output().type()));
  });
}

using Axes = std::vector<std::size_t>;

/// Constant axes of a tensor of that rank, counted from the start; nothing if they are not known, or none of it.
std::optional<Axes> axes_of(const Facts& facts, const Value* list, std::size_t rank) {
  const auto given = facts.ints(list);
  if (!given) return std::nullopt;
  Axes axes;
  const auto count = static_cast<std::int64_t>(rank);
  for (const std::int64_t axis : *given) {
    if (axis < -count || axis >= count) return std::nullopt;
    axes.push_back(static_cast<std::size_t>(axis < 0 ? axis + count : axis));
  }
  std::ranges::sort(axes);
  return axes;
}

/// The order of the axes that stay where some are taken away on both sides.
Permutation without(const Permutation& permutation, const Axes& axes) {
  Permutation kept;
  for (const std::int64_t axis : permutation) {
    const auto behind = std::ranges::lower_bound(axes, static_cast<std::size_t>(axis));
    if (behind != axes.end() && *behind == static_cast<std::size_t>(axis)) continue;
    kept.push_back(axis - (behind - axes.begin()));
  }
  return kept;
}

/// The axes that an Unsqueeze put in, wherever the Transpose took them.
Match match_squeezed(const Facts& facts, ir::Node& node) {
  const ir::Node* swap = producer_of(node.find_input(0), "Transpose");
  const ir::Node* widened = swap ? producer_of(swap->find_input(0), "Unsqueeze") : nullptr;
  const auto permutation = widened ? permutation_of(*swap) : std::nullopt;
  if (!permutation || !shape_of(widened->input(0)))
    return Match::no("it is not of a Transpose of what got further axes");
  const auto put_in = axes_of(facts, widened->find_input(1), permutation->size());
  const auto taken = axes_of(facts, node.find_input(1), permutation->size());
  if (!put_in || !taken) return Match::no("the axes are not known");
  Axes origins;
  for (const std::size_t axis : *taken) origins.push_back(static_cast<std::size_t>((*permutation)[axis]));
  std::ranges::sort(origins);
  if (origins != *put_in) return Match::no("other axes are taken away than were put in");
  return Match([&node, &from = widened->input(0), order = without(*permutation, *put_in)](Rewriter& rewriter) {
    rewriter.replace(node.output(), rewriter.transpose(from, order));
  });
}

/// Whether each reader takes one entry along that axis.
bool is_read_entry_by_entry(const Facts& facts, const Value& value, std::int64_t axis) {
  return std::ranges::all_of(value.uses(), [&](const ir::Use* use) {
    const ir::Node& reader = use->user();
    return reader.is("", "Gather") && use->index() == 0 && facts.constant(reader.find_input(1)) != nullptr &&
           has_rank(reader.input(1), 0) && axis_from_start(value, int_attribute(reader, "axis", 0)) == axis;
  });
}

/// One entry along an axis: there is less to move behind it.
Match match_gathered(const Facts& facts, ir::Node& node) {
  const ir::Node* swap = producer_of(node.find_input(0), "Transpose");
  const auto permutation = swap ? permutation_of(*swap) : std::nullopt;
  const auto axis = axis_from_start(node.input(0), int_attribute(node, "axis", 0));
  if (!permutation || !axis || !shape_of(swap->input(0))) return Match::no("the operand is no Transpose");
  if (!is_read_entry_by_entry(facts, swap->output(), *axis))
    return Match::no("the Transpose is read otherwise than one entry along that axis at a time");
  const auto from = static_cast<std::size_t>((*permutation)[static_cast<std::size_t>(*axis)]);
  return Match([=, &node, order = without(*permutation, {from})](Rewriter& rewriter) {
    ir::Shape shape = *shape_of(swap->input(0));
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(from));
    Value& entry =
        rewriter.op("Gather", {&swap->input(0), node.find_input(1)}, {{"axis", static_cast<std::int64_t>(from)}},
                    ir::Type::tensor(node.output().dtype(), std::move(shape)));
    rewriter.replace(node.output(), std::ranges::is_sorted(order) ? entry : rewriter.transpose(entry, order));
  });
}

/// How many axes at the end of the value a Reshape made of the last one of its operand, all of known sizes; 0 if it did
/// something else.
std::size_t parts_of_last_axis(const ir::Node& reshape) {
  const auto& before = shape_of(reshape.input(0));
  const auto& after = shape_of(reshape.output());
  if (!before || !after || before->empty() || after->size() <= before->size()) return 0;
  const std::size_t kept = before->size() - 1;
  const auto are_known = std::ranges::all_of(after->begin() + static_cast<std::ptrdiff_t>(kept), after->end(),
                                             [](const ir::Dim& dim) { return dim.constant().value_or(0) > 0; });
  return are_known && std::equal(before->begin(), before->end() - 1, after->begin()) ? after->size() - kept : 0;
}

bool is_reshaped_alone(const Value& value) {
  return has_one_use(value) && value.uses().front()->user().is("", "Reshape") && value.uses().front()->index() == 0;
}

/// Axes that stay where they are may be taken apart behind the Transpose, where the next Reshape is.
Match match_split_axis(const Facts&, ir::Node& node) {
  const ir::Node* split = producer_of(node.find_input(0), "Reshape");
  const auto permutation = permutation_of(node);
  const std::size_t parts = split && permutation ? parts_of_last_axis(*split) : 0;
  if (parts == 0) return Match::no("the operand is no last axis taken apart");
  const std::size_t kept = permutation->size() - parts;
  for (std::size_t i = kept; i < permutation->size(); ++i) {
    if ((*permutation)[i] != static_cast<std::int64_t>(i)) return Match::no("the parts of the last axis are moved");
  }
  if (!is_reshaped_alone(node.output())) return Match::no("no Reshape alone reads it");
  return Match([=, &node, order = *permutation](Rewriter& rewriter) mutable {
    order.resize(kept);
    order.push_back(static_cast<std::int64_t>(kept));
    Value& moved = rewriter.transpose(split->input(0), order);
    rewriter.replace(node.output(), rewriter.reshape(moved, *shape_of(node.output())));
  });
}

}  // namespace

void populate_transpose(PatternTable& table) {
  table.add({.name = "transpose_of_nothing",
             .matches = "`Transpose` that leaves every axis where it is",
             .makes = "nothing",
             .roots = {"Transpose"},
             .match = match_identity});
  table.add({.name = "transpose_of_transpose",
             .matches = "`Transpose` of a `Transpose`",
             .makes = "one `Transpose`, or nothing",
             .roots = {"Transpose"},
             .match = match_chain});
  table.add({.name = "squeeze_of_transpose",
             .matches = "`Squeeze` of the axes that an `Unsqueeze` put in before a `Transpose`",
             .makes = "the `Transpose` of the other axes",
             .roots = {"Squeeze"},
             .match = match_squeezed});
  table.add({.name = "gather_of_transpose",
             .matches = "`Gather` of one entry along an axis of a `Transpose` that is read in no other way",
             .makes = "the `Gather` of what the `Transpose` reads; a `Transpose` of the entry",
             .roots = {"Gather"},
             .match = match_gathered});
  table.add(
      {.name = "transpose_of_split_axis",
       .matches = "`Transpose` of a last axis taken apart by `Reshape`, whose parts stay at the end, for a `Reshape`",
       .makes = "the `Transpose` of the axis as a whole; the `Reshape` comes behind it",
       .roots = {"Transpose"},
       .match = match_split_axis});
}

}  // namespace exportguard::optimizer
