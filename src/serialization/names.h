#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "exportguard/ir/graph.h"

namespace exportguard::serialization {

/// Hands out names, each once.
class NameSet {
 public:
  /// `wanted`, or `wanted_1`, `wanted_2`, … if it is taken.
  std::string unique(std::string_view wanted);

 private:
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, std::size_t> next_suffix_;
};

/// An output of a graph as ONNX wants it: made by a node of that graph, and listed once.
struct OutputName {
  const ir::Value* value;
  std::string name;
  bool needs_identity;  ///< the value is an input, an initializer, of an outer graph, or an output already
};

/// The names of a graph and of all graphs nested in it, without any two alike. Those of the graph's inputs, outputs and
/// initializers are as the user knows them; all others are made from hints.
class GraphNames {
 public:
  /// @throws GraphError for an input without a name.
  explicit GraphNames(const ir::Graph& graph);

  /// @throws GraphError if no graph around the reader has defined `value`.
  const std::string& value(const ir::Value& value) const;
  const std::string& node(const ir::Node& node) const { return nodes_.at(&node); }
  const std::vector<OutputName>& outputs(const ir::Graph& graph) const { return outputs_.at(&graph); }
  std::string new_node(std::string_view wanted) { return node_names_.unique(wanted); }

 private:
  void name_graph(const ir::Graph& graph);
  void name_inputs(const ir::Graph& graph);
  void name_outputs(const ir::Graph& graph);
  void name_initializers(const ir::Graph& graph);
  void name_nodes(const ir::Graph& graph);
  OutputName output_name(const ir::Graph& graph, std::size_t i);

  NameSet value_names_;
  NameSet node_names_;
  std::unordered_map<const ir::Value*, std::string> values_;
  std::unordered_map<const ir::Node*, std::string> nodes_;
  std::unordered_map<const ir::Graph*, std::vector<OutputName>> outputs_;
};

}  // namespace exportguard::serialization
