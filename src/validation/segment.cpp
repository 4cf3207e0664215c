#include "validation/segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace exportguard::validation {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

/// Calls `visit` with what the node reads of the graph it stands in, through its bodies too.
template <typename Visit>
void for_each_read(const Node& node, const Graph& graph, const Visit& visit) {
  const auto read = [&](const Value* value) {
    if (value != nullptr && &value->graph() == &graph) visit(*value);
  };
  for (std::size_t i = 0; i < node.input_count(); ++i) read(node.find_input(i));
  for (const Graph* body : node.subgraphs()) {
    for (const Node& inner : *body) for_each_read(inner, graph, visit);
    for (const Value* output : body->outputs()) read(output);
  }
}

/// Values of a graph by those of the graph that it is a copy of.
std::unordered_map<const Value*, Value*> values_of_copy(const Graph& graph, const Graph& copy) {
  std::unordered_map<const Value*, Value*> found;
  for (std::size_t i = 0; i < graph.input_count(); ++i) found.emplace(&graph.input(i), &copy.input(i));
  for (std::size_t i = 0; i < graph.initializers().size(); ++i) {
    found.emplace(graph.initializers()[i].get(), copy.initializers()[i].get());
  }
  ir::NodeIterator other = copy.begin();
  for (const Node& node : graph) {
    for (std::size_t i = 0; i < node.output_count(); ++i) found.emplace(&node.output(i), &other->output(i));
    ++other;
  }
  return found;
}

std::string name_for(const Value& value, std::size_t position) {
  return value.name().empty() ? fmt::format("input.{}", position) : value.name();
}

void read_from_inputs(Graph& graph, const std::vector<Value*>& values) {
  const std::size_t old_count = graph.input_count();
  for (std::size_t i = 0; i < values.size(); ++i) {
    Value& input = graph.add_input(name_for(*values[i], i), values[i]->type());
    values[i]->replace_all_uses_with(input);
    values[i]->set_name({});
  }
  graph.erase_dead_nodes();
  for (std::size_t i = old_count; i-- > 0;) graph.erase_input(i);
}

ir::Function copied(const ir::Function& function) {
  return {function.domain, function.name, function.attributes, function.body->clone(), function.opsets};
}

}  // namespace

Segment segment_behind(const Value& target, const Values& given) {
  const Graph& graph = target.graph();
  std::unordered_set<const Node*> within;
  Values frontier;
  std::vector<const Value*> waiting{&target};
  while (!waiting.empty()) {
    const Value* value = waiting.back();
    waiting.pop_back();
    if (value->initializer() != nullptr) continue;
    if (value->producer() == nullptr || (value != &target && given.contains(value))) {
      frontier.insert(value);
    } else if (within.insert(value->producer()).second) {
      for_each_read(*value->producer(), graph, [&](const Value& read) { waiting.push_back(&read); });
    }
  }

  Segment segment;
  const auto add = [&](const Value& value) {
    if (frontier.contains(&value)) segment.frontier.push_back(&value);
  };
  for (const auto& input : graph.inputs()) add(*input);
  for (const Node& node : graph) {
    if (within.contains(&node)) segment.nodes.push_back(&node);
    for (std::size_t i = 0; i < node.output_count(); ++i) add(node.output(i));
  }
  return segment;
}

ir::Model cut_out(const ir::Model& model, const std::vector<const Value*>& outputs,
                  const std::vector<const Value*>* inputs) {
  ir::Model part;
  part.graph = model.graph->clone();
  for (const ir::Function& function : model.functions) part.functions.push_back(copied(function));
  part.opsets = model.opsets;
  part.producer = model.producer;
  part.producer_version = model.producer_version;

  Graph& graph = *part.graph;
  const auto copies = values_of_copy(*model.graph, graph);
  for (std::size_t i = graph.output_count(); i-- > 0;) graph.erase_output(i);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = outputs[i]->name();
    graph.add_output(copies.at(outputs[i]), name.empty() ? fmt::format("output.{}", i) : name);
  }
  if (inputs != nullptr) {
    std::vector<Value*> read;
    for (const Value* input : *inputs) read.push_back(copies.at(input));
    read_from_inputs(graph, read);
  }
  graph.erase_dead_nodes();
  graph.erase_unused_initializers();
  graph.sweep();
  return part;
}

void fix_inputs(ir::Model& model, const std::vector<evaluator::Value>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const ir::Tensor* tensor = values[i].find_tensor();
    if (tensor == nullptr) continue;
    ir::Shape shape;
    for (const std::int64_t size : tensor->shape()) shape.emplace_back(size);
    model.graph->input(i).set_type(ir::Type::tensor(tensor->dtype(), std::move(shape)));
  }
}

}  // namespace exportguard::validation
