#include <algorithm>

#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

bool shows_same_elements(const ir::Node* node) {
  return node && node->domain().empty() &&
         (node->op() == "Unsqueeze" || node->op() == "Reshape" || node->op() == "Expand");
}

/// The positions along one axis of the indexed tensor: a list that varies along one axis of the result alone.
struct Positions {
  Value* list = nullptr;
  std::size_t axis = 0;  ///< of the result
};

/// The one axis that is not of size 1; nothing if there are several or none.
std::optional<std::size_t> only_axis(const ir::Shape& shape) {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == ir::Dim(1)) continue;
    if (found) return std::nullopt;
    found = i;
  }
  return found;
}

/// Behind what stretches it there is a list [1, …, n, …, 1], and behind that the list [n] itself.
std::optional<Positions> positions_of(Value* part) {
  const ir::Node* stretched = producer_of(part, "Expand");
  Value* lying = stretched ? &stretched->input(0) : part;
  if (!shape_of(*lying) || !shape_of(*part) || shape_of(*lying)->size() != shape_of(*part)->size()) return std::nullopt;
  const auto axis = only_axis(*shape_of(*lying));
  if (!axis) return std::nullopt;
  const ir::Dim size = (*shape_of(*lying))[*axis];
  if ((*shape_of(*part))[*axis] != size) return std::nullopt;  // of size 1 at a run, it would be stretched
  while (shows_same_elements(lying->producer()) && lying->producer()->op() != "Expand" && !has_rank(*lying, 1))
    lying = &lying->producer()->input(0);
  const bool is_list = has_rank(*lying, 1) && dim(*lying, 0) == size;
  return is_list ? std::optional(Positions{lying, *axis}) : std::nullopt;
}

/// 0, 1, …, n - 1 for the n elements of that axis: all of it, in order.
bool is_whole_axis(const Facts& facts, const Value& list, const Value& data, std::size_t axis) {
  const ir::Node* range = producer_of(&list, "Range");
  if (!range || !facts.is_number(range->find_input(0), 0) || !facts.is_number(range->find_input(2), 1)) return false;
  const auto& count = facts.sizes(range->find_input(1));
  return count && count->size() == 1 && count->front() == *dim(data, static_cast<std::int64_t>(axis));
}

struct Grid {
  std::vector<Positions> positions;  ///< for each axis of the indexed tensor
};

std::optional<Grid> grid_of(const ir::Node& node) {
  const ir::Node* concat = producer_of(node.find_input(1), "Concat");
  const Value& indices = node.input(1);
  if (!concat || axis_from_start(indices, int_attribute(*concat, "axis", 0)) != axis_from_start(indices, -1))
    return std::nullopt;
  Grid grid;
  for (std::size_t i = 0; i < concat->input_count(); ++i) {
    const ir::Node* column = producer_of(concat->find_input(i), "Unsqueeze");
    if (!column || dim(column->output(), -1) != ir::Dim(1) ||
        *column->output().type().rank() != *column->input(0).type().rank() + 1)
      return std::nullopt;
    const auto positions = positions_of(&column->input(0));
    const bool is_behind = positions && (grid.positions.empty() || grid.positions.back().axis < positions->axis);
    if (!is_behind) return std::nullopt;
    grid.positions.push_back(*positions);
  }
  return grid;
}

/// The result's axes beside those of the grid have size 1.
bool is_covered(const Grid& grid, const ir::Shape& result) {
  for (std::size_t axis = 0; axis < result.size(); ++axis) {
    const bool is_indexed =
        std::ranges::any_of(grid.positions, [&](const Positions& along) { return along.axis == axis; });
    if (!is_indexed && result[axis] != ir::Dim(1)) return false;
  }
  return true;
}

Match match_grid(const Facts& facts, ir::Node& node) {
  Value& data = node.input(0);
  const auto& result = shape_of(node.output());
  if (!shape_of(data) || !result || !shape_of(node.input(1)) || int_attribute(node, "batch_dims", 0) != 0)
    return Match::no("the shapes are not known");

  const auto grid = grid_of(node);
  if (!grid || grid->positions.size() != shape_of(data)->size()) return Match::no("the indices are no grid");
  if (!is_covered(*grid, *result)) return Match::no("the result is stretched");

  return Match([=, &node, &data, &facts, positions = grid->positions, shape = *result](Rewriter& rewriter) {
    Value* taken = &data;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      if (is_whole_axis(facts, *positions[i].list, data, i)) continue;
      ir::Shape sizes = *shape_of(*taken);
      sizes[i] = *dim(*positions[i].list, 0);
      taken = &rewriter.op("Gather", {taken, positions[i].list}, {{"axis", static_cast<std::int64_t>(i)}},
                           ir::Type::tensor(data.dtype(), std::move(sizes)));
    }

    std::vector<std::int64_t> added;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      const bool is_indexed =
          std::ranges::any_of(positions, [&](const Positions& along) { return along.axis == axis; });
      if (!is_indexed) added.push_back(static_cast<std::int64_t>(axis));
    }
    if (!added.empty()) taken = &rewriter.op("Unsqueeze", {taken, &rewriter.ints(added)}, {}, node.output().type());
    rewriter.replace(node.output(), *taken);
  });
}

}  // namespace

void populate_indexing(PatternTable& table) {
  table.add({.name = "gather_nd_of_grid",
             .matches = "`GatherND` with a list of positions for each axis, each along an axis of its own, as "
                        "`mask[b[:, None], k]` becomes",
             .makes = "`Gather` along the axes that are not taken whole, and `Unsqueeze`",
             .roots = {"GatherND"},
             .match = match_grid});
}

}  // namespace exportguard::optimizer
