#include "optimizer/order.h"

#include <algorithm>

namespace exportguard::optimizer {
namespace {

/// The node of `graph` that a node is, or is nested in.
const ir::Node* at_level(const ir::Node& node, const ir::Graph& graph) {
  const ir::Node* level = &node;
  while (level && &level->graph() != &graph) level = level->graph().parent();
  return level;
}

}  // namespace

bool is_read_behind(const Value& value, const ir::Node& node) {
  return std::ranges::all_of(value.uses(), [&](const ir::Use* use) {
    const ir::Node* reader = at_level(use->user(), node.graph());
    if (reader == &node) return &use->user() == &node;
    return reader && (reader->is("", "return") || node.is_before(*reader));
  });
}

}  // namespace exportguard::optimizer
