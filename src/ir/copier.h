#pragma once

#include <memory>
#include <type_traits>
#include <unordered_map>
#include <variant>

#include "exportguard/ir/graph.h"

namespace exportguard::ir {

/// Copies nodes and nested graphs, and keeps what stands for each value of the original.
class Copier {
 public:
  void map(const Value& original, Value* copy) { copies_[&original] = copy; }

  /// What an operand that read `value` reads in the copy: a value of another graph stays.
  Value* find(Value* value) const {
    const auto found = copies_.find(value);
    return found == copies_.end() ? value : found->second;
  }

  std::unique_ptr<Graph> copy(const Graph& graph) {
    auto result = std::make_unique<Graph>(graph.name());
    for (const auto& input : graph.inputs()) map(*input, &result->add_input(input->name(), input->type()));
    for (const auto& value : graph.initializers()) {
      Value& made = result->add_initializer(value->name(), *value->initializer());
      made.set_type(value->type());
      map(*value, &made);
    }
    copy_nodes(graph, *result, nullptr);
    for (std::size_t i = 0; i < graph.output_count(); ++i) {
      result->add_output(find(graph.find_output(i)), graph.output_name(i));
    }
    return result;
  }

  void copy_nodes(const Graph& from, Graph& to, Node* where) {
    for (const Node& node : from) copy_node(node, to, where);
  }

  /// In front of `where`, or at the end if null.
  void copy_node(const Node& node, Graph& to, Node* where) {
    NodeSpec spec = copy_spec(node);
    Node& made = where ? to.insert_before(*where, std::move(spec)) : to.append(std::move(spec));
    for (std::size_t i = 0; i < node.output_count(); ++i) {
      made.output(i).set_name(node.output(i).name());
      map(node.output(i), &made.output(i));
    }
  }

 private:
  NodeSpec copy_spec(const Node& node) {
    NodeSpec spec;
    spec.domain = node.domain();
    spec.op = node.op();
    spec.arguments = node.arguments();
    spec.is_torch = node.is_torch();
    spec.source = node.source();
    spec.name = node.name();
    spec.outputs.clear();
    for (std::size_t i = 0; i < node.input_count(); ++i) spec.inputs.push_back(find(node.find_input(i)));
    for (std::size_t i = 0; i < node.output_count(); ++i) spec.outputs.push_back(node.output(i).type());
    for (const auto& [name, value] : node.attributes()) spec.attributes.emplace_back(name, copy_attribute(value));
    return spec;
  }

  Attribute copy_attribute(const Attribute& attribute) {
    return std::visit(
        [this]<typename T>(const T& value) -> Attribute {
          if constexpr (std::is_same_v<T, std::unique_ptr<Graph>>) {
            return copy(*value);
          } else {
            return value;
          }
        },
        attribute);
  }

  std::unordered_map<const Value*, Value*> copies_;
};

}  // namespace exportguard::ir
