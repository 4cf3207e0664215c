#include "validation/segment.h"

#include <fmt/format.h>

#include <utility>

#include "ir/copier.h"

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

std::string name_for(const Value& value, std::size_t position) {
  return value.name().empty() ? fmt::format("input.{}", position) : value.name();
}

/// Nodes behind values, which are read from `frontier` on: those of `given`, and inputs of the graph.
struct Reach {
  std::unordered_set<const Node*> nodes;
  Values constants;
  Values frontier;
};

Reach reach_of(const std::vector<const Value*>& targets, const Values& given) {
  const Values are_targets(targets.begin(), targets.end());
  Reach reach;
  std::vector<const Value*> waiting = targets;
  while (!waiting.empty()) {
    const Value* value = waiting.back();
    waiting.pop_back();
    if (value->initializer() != nullptr) {
      reach.constants.insert(value);
    } else if (value->producer() == nullptr || (!are_targets.contains(value) && given.contains(value))) {
      reach.frontier.insert(value);
    } else if (reach.nodes.insert(value->producer()).second) {
      for_each_read(*value->producer(), value->graph(), [&](const Value& read) { waiting.push_back(&read); });
    }
  }
  return reach;
}

void copy_inputs(const std::vector<const Value*>& values, Graph& graph, ir::Copier& copier) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    copier.map(*values[i], &graph.add_input(name_for(*values[i], i), values[i]->type()));
  }
}

void copy_constants(const Graph& from, const Values& read, Graph& to, ir::Copier& copier) {
  for (const auto& value : from.initializers()) {
    if (!read.contains(value.get())) continue;
    Value& made = to.add_initializer(value->name(), *value->initializer());
    made.set_type(value->type());
    copier.map(*value, &made);
  }
}

// What a node makes beside a target may be read from an input as well: that has the name.
void copy_node(const Node& node, const Values& given, Graph& graph, ir::Copier& copier) {
  std::vector<std::pair<const Value*, Value*>> inputs;
  for (std::size_t i = 0; i < node.output_count(); ++i) {
    const Value* output = &node.output(i);
    if (given.contains(output)) inputs.emplace_back(output, copier.find(const_cast<Value*>(output)));
  }
  copier.copy_node(node, graph, nullptr);
  for (const auto& [output, input] : inputs) {
    copier.find(const_cast<Value*>(output))->set_name({});
    copier.map(*output, input);
  }
}

ir::Function copied(const ir::Function& function) {
  return {function.domain, function.name, function.attributes, function.body->clone(), function.opsets};
}

}  // namespace

Segment segment_behind(const Value& target, const Values& given) {
  const Graph& graph = target.graph();
  const Reach reach = reach_of({&target}, given);
  Segment segment;
  const auto add = [&](const Value& value) {
    if (reach.frontier.contains(&value)) segment.frontier.push_back(&value);
  };
  for (const auto& input : graph.inputs()) add(*input);
  for (const Node& node : graph) {
    if (reach.nodes.contains(&node)) segment.nodes.push_back(&node);
    for (std::size_t i = 0; i < node.output_count(); ++i) add(node.output(i));
  }
  return segment;
}

ir::Model cut_out(const ir::Model& model, const std::vector<const Value*>& outputs,
                  const std::vector<const Value*>* inputs) {
  ir::Model part;
  for (const ir::Function& function : model.functions) part.functions.push_back(copied(function));
  part.opsets = model.opsets;
  part.producer = model.producer;
  part.producer_version = model.producer_version;
  part.graph = std::make_unique<Graph>(model.graph->name());

  std::vector<const Value*> read;
  if (inputs != nullptr) read = *inputs;
  for (std::size_t i = 0; inputs == nullptr && i < model.graph->input_count(); ++i)
    read.push_back(&model.graph->input(i));
  const Values given(read.begin(), read.end());
  const Reach reach = reach_of(outputs, given);

  ir::Copier copier;
  copy_inputs(read, *part.graph, copier);
  copy_constants(*model.graph, reach.constants, *part.graph, copier);
  for (const Node& node : *model.graph) {
    if (reach.nodes.contains(&node)) copy_node(node, given, *part.graph, copier);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = outputs[i]->name();
    part.graph->add_output(copier.find(const_cast<Value*>(outputs[i])),
                           name.empty() ? fmt::format("output.{}", i) : name);
  }
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
