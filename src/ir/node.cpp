#include <fmt/format.h>

#include <algorithm>

#include "exportguard/common/errors.h"
#include "exportguard/ir/graph.h"
#include "ir/describe.h"

namespace exportguard::ir {

Node::Node(Graph& graph, std::string domain, std::string op, bool is_torch)
    : graph_(&graph), domain_(std::move(domain)), op_(std::move(op)), is_torch_(is_torch) {}

Node::~Node() = default;

std::string Node::qualified_name() const {
  if (domain_.empty()) return op_;
  return fmt::format("{}{}{}", domain_, is_torch_ ? "." : "::", op_);
}

// ------------------------------------------------------------------------------------------------ operands, outputs

Value* Node::find_input(std::size_t i) const { return i < inputs_.size() ? inputs_[i].value() : nullptr; }

Value& Node::input(std::size_t i) const {
  if (Value* value = find_input(i)) return *value;
  if (i < inputs_.size()) throw GraphError(fmt::format("{}: operand {} is left out", describe(*this), i));
  throw GraphError(fmt::format("{} has {} operands, no operand {}", describe(*this), inputs_.size(), i));
}

void Node::set_input(std::size_t i, Value* value) {
  if (i >= inputs_.size()) {
    throw GraphError(fmt::format("{} has {} operands, no operand {}", describe(*this), inputs_.size(), i));
  }
  if (value != nullptr) require_readable(*graph_, *value);
  inputs_[i].link(value);
}

void Node::append_input(Value* value) {
  if (value != nullptr) require_readable(*graph_, *value);
  inputs_.emplace_back(*this, inputs_.size(), value);
}

void Node::erase_operand(std::size_t i) {
  inputs_.erase(inputs_.begin() + static_cast<std::ptrdiff_t>(i));
  for (std::size_t k = i; k < inputs_.size(); ++k) inputs_[k].index_ = k;
}

Value& Node::output(std::size_t i) const {
  if (i < outputs_.size()) return *outputs_[i];
  throw GraphError(fmt::format("{} has {} outputs, no output {}", qualified_name(), outputs_.size(), i));
}

Value& Node::append_output(Type type, std::string name) {
  return *outputs_.emplace_back(graph_->make_value(this, outputs_.size(), std::move(type), std::move(name)));
}

// ------------------------------------------------------------------------------------------------ attributes

const Attribute* Node::find_attribute(std::string_view name) const {
  const auto found = std::ranges::find(attributes_, name, &NamedAttribute::first);
  return found == attributes_.end() ? nullptr : &found->second;
}

const Attribute& Node::attribute(std::string_view name) const {
  if (const Attribute* found = find_attribute(name)) return *found;
  throw GraphError(fmt::format("{} has no attribute '{}'", describe(*this), name));
}

void Node::set_attribute(std::string name, Attribute value) {
  if (const auto* graph = std::get_if<std::unique_ptr<Graph>>(&value)) {
    if (*graph == nullptr) throw GraphError(fmt::format("{}: attribute '{}' is a null graph", describe(*this), name));
    (*graph)->parent_ = this;
    has_subgraphs_ = true;
  }
  const auto found = std::ranges::find(attributes_, name, &NamedAttribute::first);
  if (found == attributes_.end()) {
    attributes_.emplace_back(std::move(name), std::move(value));
  } else {
    found->second = std::move(value);
  }
}

void Node::remove_attribute(std::string_view name) {
  std::erase_if(attributes_, [&](const NamedAttribute& attribute) { return attribute.first == name; });
}

Graph& Node::subgraph(std::string_view name) const {
  if (const auto* graph = std::get_if<std::unique_ptr<Graph>>(&attribute(name))) return **graph;
  throw GraphError(fmt::format("{}: attribute '{}' must be a graph", describe(*this), name));
}

std::vector<Graph*> Node::subgraphs() const {
  std::vector<Graph*> graphs;
  if (!has_subgraphs_) return graphs;
  for (const auto& [name, value] : attributes_) {
    if (const auto* graph = std::get_if<std::unique_ptr<Graph>>(&value)) graphs.push_back(graph->get());
  }
  return graphs;
}

// ------------------------------------------------------------------------------------------------ order

Node* Node::next() const {
  Node* node = next_;
  while (node != nullptr && node->erased_) node = node->next_;
  return node;
}

Node* Node::previous() const {
  Node* node = previous_;
  while (node != nullptr && node->erased_) node = node->previous_;
  return node;
}

bool Node::is_before(const Node& other) const {
  if (graph_ != other.graph_) {
    throw GraphError(
        fmt::format("{} and {} have no order: they are in different graphs", describe(*this), describe(other)));
  }
  if (!graph_->is_numbered_) graph_->renumber();
  return order_ < other.order_;
}

// An erased node still knows what followed it, and so do the erased nodes behind it.
NodeIterator& NodeIterator::operator++() {
  node_ = node_->next();
  return *this;
}

NodeIterator NodeIterator::operator++(int) {
  const NodeIterator old = *this;
  ++*this;
  return old;
}

}  // namespace exportguard::ir
