#include "serialization/names.h"

#include <fmt/format.h>

#include "exportguard/common/errors.h"

namespace exportguard::serialization {

std::string NameSet::unique(std::string_view wanted) {
  std::string name(wanted);
  if (taken_.insert(name).second) return name;
  std::size_t& suffix = next_suffix_[name];
  std::string candidate;
  do {
    candidate = fmt::format("{}_{}", wanted, ++suffix);
  } while (!taken_.insert(candidate).second);
  return candidate;
}

GraphNames::GraphNames(const ir::Graph& graph) { name_graph(graph); }

// Outputs before initializers and nodes: when two want one name, the user's view of the model wins.
void GraphNames::name_graph(const ir::Graph& graph) {
  name_inputs(graph);
  name_outputs(graph);
  name_initializers(graph);
  name_nodes(graph);
}

void GraphNames::name_inputs(const ir::Graph& graph) {
  for (const auto& input : graph.inputs()) {
    if (input->name().empty()) {
      throw GraphError(
          fmt::format("input {} of graph '{}' has no name; give it one", input->output_index(), graph.name()));
    }
    values_.emplace(input.get(), value_names_.unique(input->name()));
  }
}

void GraphNames::name_outputs(const ir::Graph& graph) {
  std::vector<OutputName> names;
  for (std::size_t i = 0; i < graph.output_count(); ++i) {
    if (graph.find_output(i) != nullptr) {
      names.push_back(output_name(graph, i));
    } else if (graph.parent() != nullptr) {
      throw GraphError(fmt::format("output {} of the graph '{}' inside {} is None, which ONNX cannot represent", i,
                                   graph.name(), graph.parent()->qualified_name()));
    }
  }
  outputs_.emplace(&graph, std::move(names));
}

OutputName GraphNames::output_name(const ir::Graph& graph, std::size_t i) {
  const ir::Value& value = graph.output(i);
  std::string wanted = graph.output_name(i).empty() ? value.name() : graph.output_name(i);
  if (wanted.empty()) wanted = fmt::format("output_{}", i);
  const std::string name = value_names_.unique(wanted);
  const bool is_made_here = value.producer() != nullptr && &value.graph() == &graph;
  const bool takes_name = is_made_here && values_.emplace(&value, name).second;
  return {&value, name, !takes_name};
}

void GraphNames::name_initializers(const ir::Graph& graph) {
  for (const auto& initializer : graph.initializers()) {
    const std::string_view wanted = initializer->name().empty() ? "constant" : std::string_view(initializer->name());
    values_.emplace(initializer.get(), value_names_.unique(wanted));
  }
}

void GraphNames::name_nodes(const ir::Graph& graph) {
  for (const ir::Node& node : graph) {
    nodes_.emplace(&node, node_names_.unique(node.name().empty() ? node.op() : node.name()));
    for (std::size_t i = 0; i < node.output_count(); ++i) {
      const ir::Value& output = node.output(i);
      if (values_.contains(&output)) continue;
      values_.emplace(&output, value_names_.unique(output.name().empty() ? node.op() : output.name()));
    }
    for (const ir::Graph* nested : node.subgraphs()) name_graph(*nested);
  }
}

const std::string& GraphNames::value(const ir::Value& value) const {
  const auto found = values_.find(&value);
  if (found != values_.end()) return found->second;
  throw GraphError(fmt::format("value '{}' is read but no graph around its reader defines it", value.name()));
}

}  // namespace exportguard::serialization
