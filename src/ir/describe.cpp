#include "ir/describe.h"

#include <fmt/format.h>

#include "exportguard/common/errors.h"
#include "exportguard/ir/places.h"

namespace exportguard::ir {
namespace {

const Graph& root_of(const Graph& graph) {
  const Graph* root = &graph;
  while (root->parent() != nullptr) root = &root->parent()->graph();
  return *root;
}

}  // namespace

std::string describe(const Node& node) {
  std::string text = node.qualified_name();
  const bool has_name = node.output_count() > 0 && !node.output().name().empty();
  if (has_name) text += " %" + node.output().name();
  return placed(text, node.source());
}

std::string describe(const Value& value) {
  if (!value.name().empty()) return '%' + value.name();
  if (value.producer() != nullptr)
    return fmt::format("output {} of {}", value.output_index(), describe(*value.producer()));
  return fmt::format("input {} of graph '{}'", value.output_index(), value.graph().name());
}

bool is_within(const Graph& inner, const Graph& outer) {
  const Graph* graph = &inner;
  while (graph != &outer && graph->parent() != nullptr) graph = &graph->parent()->graph();
  return graph == &outer;
}

void require_readable(const Graph& reader, const Value& value) {
  if (value.producer() != nullptr && value.producer()->is_erased()) {
    throw GraphError(fmt::format("graph '{}' cannot read {}: its node was erased", reader.name(), describe(value)));
  }
  if (&value.graph() == &reader || is_within(reader, value.graph())) return;
  if (&root_of(reader) != &root_of(value.graph())) return;
  throw GraphError(fmt::format("graph '{}' cannot read {}: it is defined in graph '{}', which does not enclose it",
                               reader.name(), describe(value), value.graph().name()));
}

}  // namespace exportguard::ir
