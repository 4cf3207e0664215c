#pragma once

#include <cstddef>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "exportguard/ir/graph.h"

namespace exportguard::serialization {

/// Hands out names, each once. They live as long as `memory`.
class NameSet {
 public:
  explicit NameSet(std::pmr::memory_resource& memory) : memory_(&memory), taken_(&memory), next_suffix_(&memory) {}

  /// `wanted`, or `wanted_1`, `wanted_2`, … if it is taken.
  std::string_view unique(std::string_view wanted);

  /// `wanted`; nothing if it is taken.
  std::optional<std::string_view> take(std::string_view wanted);

  void reserve(std::size_t count) { taken_.reserve(count); }

 private:
  std::string_view kept(std::string_view name);

  std::pmr::memory_resource* memory_;
  std::pmr::unordered_set<std::string_view> taken_;
  std::pmr::unordered_map<std::string_view, std::size_t> next_suffix_;
};

/// An output of a graph as ONNX wants it: made by a node of that graph, and listed once.
struct OutputName {
  const ir::Value* value;
  std::string_view name;
  bool needs_identity;  ///< the value is an input, an initializer, of an outer graph, or an output already
};

/// The names of a graph and of all graphs nested in it, without any two alike. Those of the graph's inputs, outputs and
/// initializers are as the user knows them; all others are made from hints. Names live as long as this.
class GraphNames {
 public:
  /// @throws GraphError for an input without a name.
  explicit GraphNames(const ir::Graph& graph);

  /// @throws GraphError if no graph around the reader has defined `value`.
  std::string_view value(const ir::Value& value) const;
  std::string_view node(const ir::Node& node) const { return nodes_.at(&node); }
  const std::vector<OutputName>& outputs(const ir::Graph& graph) const { return outputs_.at(&graph); }
  std::string_view new_node(std::string_view wanted) { return node_names_.unique(wanted); }

 private:
  void name_graph(const ir::Graph& graph);
  void name_inputs(const ir::Graph& graph);
  void name_default_inputs(const ir::Graph& graph);
  void name_outputs(const ir::Graph& graph);
  void name_initializers(const ir::Graph& graph);
  void name_nodes(const ir::Graph& graph);
  void name_unnamed();
  OutputName output_name(const ir::Graph& graph, std::size_t i, std::span<const OutputName> before);

  // Given back at once: a model has some hundred thousand names.
  std::pmr::monotonic_buffer_resource memory_;
  NameSet value_names_{memory_};
  NameSet node_names_{memory_};
  std::pmr::unordered_map<const ir::Value*, std::string_view> values_{&memory_};
  std::pmr::unordered_map<const ir::Node*, std::string_view> nodes_{&memory_};
  std::unordered_map<const ir::Graph*, std::vector<OutputName>> outputs_;
  std::vector<const ir::Value*> unnamed_;  ///< without a name, or with one that another value has
};

}  // namespace exportguard::serialization
