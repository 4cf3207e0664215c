#include "serialization/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "exportguard/common/errors.h"
#include "exportguard/ir/default_input.h"

namespace exportguard::serialization {

namespace {

/// Whether a caller may give the value.
bool is_given(const ir::Value& value) {
  if (value.producer() != nullptr) return ir::is_default_input(*value.producer());
  return value.initializer() == nullptr;
}

}  // namespace

std::string_view NameSet::unique(std::string_view wanted) {
  const auto found = taken_.find(wanted);
  if (found == taken_.end()) return kept(wanted);
  std::size_t& suffix = next_suffix_[*found];
  fmt::memory_buffer candidate;
  do {
    candidate.clear();
    fmt::format_to(std::back_inserter(candidate), "{}_{}", wanted, ++suffix);
  } while (taken_.contains(std::string_view(candidate.data(), candidate.size())));
  return kept({candidate.data(), candidate.size()});
}

std::optional<std::string_view> NameSet::take(std::string_view wanted) {
  if (taken_.contains(wanted)) return std::nullopt;
  return kept(wanted);
}

std::string_view NameSet::kept(std::string_view name) {
  char* copy = static_cast<char*>(memory_->allocate(std::max<std::size_t>(name.size(), 1), 1));
  std::ranges::copy(name, copy);
  return *taken_.emplace(copy, name.size()).first;
}

GraphNames::GraphNames(const ir::Graph& graph) {
  for (auto* names : {&value_names_, &node_names_}) names->reserve(graph.node_count());
  values_.reserve(graph.node_count());
  nodes_.reserve(graph.node_count());
  name_graph(graph);
  name_unnamed();
}

// Outputs before initializers and nodes: when two want one name, the user's view of the model wins.
void GraphNames::name_graph(const ir::Graph& graph) {
  name_inputs(graph);
  name_default_inputs(graph);
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

// Two values, one name: in the file they are an input and its default.
void GraphNames::name_default_inputs(const ir::Graph& graph) {
  for (const ir::Node& node : graph) {
    if (!ir::is_default_input(node)) continue;
    const std::string_view name = value_names_.unique(node.input(0).name());
    values_.emplace(&node.input(0), name);
    values_.emplace(&node.output(), name);
  }
}

void GraphNames::name_outputs(const ir::Graph& graph) {
  std::vector<OutputName> names;
  for (std::size_t i = 0; i < graph.output_count(); ++i) {
    if (graph.find_output(i) != nullptr) {
      names.push_back(output_name(graph, i, names));
    } else if (graph.parent() != nullptr) {
      throw GraphError(fmt::format("output {} of the graph '{}' inside {} is None, which ONNX cannot represent", i,
                                   graph.name(), graph.parent()->qualified_name()));
    }
  }
  outputs_.emplace(&graph, std::move(names));
}

// An input that is an output under its own name is written as it is, once: callers ask for it by that name.
OutputName GraphNames::output_name(const ir::Graph& graph, std::size_t i, std::span<const OutputName> before) {
  const ir::Value& value = graph.output(i);
  std::string wanted = graph.output_name(i).empty() ? value.name() : graph.output_name(i);
  if (wanted.empty()) wanted = fmt::format("output_{}", i);
  const auto input = graph.parent() == nullptr ? values_.find(&value) : values_.end();
  const bool is_first = std::ranges::none_of(before, [&](const OutputName& output) { return output.name == wanted; });
  if (input != values_.end() && is_given(value) && input->second == wanted && is_first) {
    return {&value, input->second, false};
  }
  const std::string_view name = value_names_.unique(wanted);
  const bool is_made_here = value.producer() != nullptr && &value.graph() == &graph;
  const bool takes_name = is_made_here && values_.emplace(&value, name).second;
  return {&value, name, !takes_name};
}

void GraphNames::name_initializers(const ir::Graph& graph) {
  for (const auto& initializer : graph.initializers()) {
    if (values_.contains(initializer.get())) continue;
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
      const auto name = output.name().empty() ? std::nullopt : value_names_.take(output.name());
      if (name) {
        values_.emplace(&output, *name);
      } else {
        unnamed_.push_back(&output);
      }
    }
  }
  for (const ir::Node& node : graph) {
    for (const ir::Graph* nested : node.subgraphs()) name_graph(*nested);
  }
}

// Last, when whoever can have the name it wants does: a number that is given here would else be some third one's name,
// and a name tells where a value comes from.
void GraphNames::name_unnamed() {
  for (const ir::Value* value : unnamed_) {
    values_.emplace(value, value_names_.unique(value->name().empty() ? value->producer()->op() : value->name()));
  }
}

std::string_view GraphNames::value(const ir::Value& value) const {
  const auto found = values_.find(&value);
  if (found != values_.end()) return found->second;
  throw GraphError(fmt::format("value '{}' is read but no graph around its reader defines it", value.name()));
}

}  // namespace exportguard::serialization
