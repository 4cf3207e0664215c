#include "exportguard/ir/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "exportguard/common/errors.h"
#include "ir/describe.h"

namespace exportguard::ir {
namespace {

// Room between neighbours, so that insertions seldom need a renumbering.
constexpr std::size_t kOrderStep = std::size_t{1} << 32;
constexpr std::size_t kOrderOfReturn = std::numeric_limits<std::size_t>::max();

Type type_of(const Tensor& tensor) {
  return Type::tensor(tensor.dtype(), Shape(tensor.shape().begin(), tensor.shape().end()));
}

}  // namespace

void ReturnToGraph::operator()(Node* node) const noexcept {
  Pool<Node>& pool = node->graph_->node_pool_;
  node->~Node();
  pool.give_back(node);
}

void ReturnToGraph::operator()(Value* value) const noexcept {
  Pool<Value>& pool = value->graph_->value_pool_;
  value->~Value();
  pool.give_back(value);
}

OwnedNode Graph::make_node(std::string domain, std::string op, bool is_torch) {
  return OwnedNode(::new (node_pool_.take()) Node(*this, std::move(domain), std::move(op), is_torch));
}

OwnedValue Graph::make_value(Node* producer, std::size_t index, Type type, std::string name) {
  return OwnedValue(::new (value_pool_.take()) Value(*this, producer, index, std::move(type), std::move(name)));
}

Graph::Graph(std::string name) : name_(std::move(name)), return_(make_node("", "return", false)) {
  return_->order_ = kOrderOfReturn;
}

// Operands go before the values they read, and nested graphs before what they captured.
Graph::~Graph() {
  return_->inputs_.clear();
  for (const auto& node : owned_) node->attributes_.clear();
  for (const auto& node : owned_) node->inputs_.clear();
}

// ------------------------------------------------------------------------------------------------ inputs

Value& Graph::add_input(std::string name, Type type) {
  return *inputs_.emplace_back(make_value(nullptr, inputs_.size(), std::move(type), std::move(name)));
}

Value& Graph::input(std::size_t i) const {
  if (i < inputs_.size()) return *inputs_[i];
  throw GraphError(fmt::format("graph '{}' has {} inputs, no input {}", name_, inputs_.size(), i));
}

void Graph::erase_input(std::size_t i) {
  const Value& value = input(i);
  if (!value.is_unused()) {
    const Node& user = value.uses().front()->user();
    throw GraphError(fmt::format("cannot erase {}: {} reads it", describe(value), describe(user)));
  }
  inputs_.erase(inputs_.begin() + static_cast<std::ptrdiff_t>(i));
  for (std::size_t k = i; k < inputs_.size(); ++k) inputs_[k]->index_ = k;
}

void Graph::move_input(std::size_t from, std::size_t to) {
  input(from);
  input(to);
  const auto first = inputs_.begin() + static_cast<std::ptrdiff_t>(std::min(from, to));
  const auto last = inputs_.begin() + static_cast<std::ptrdiff_t>(std::max(from, to)) + 1;
  std::rotate(first, from < to ? first + 1 : last - 1, last);
  for (std::size_t k = std::min(from, to); k <= std::max(from, to); ++k) inputs_[k]->index_ = k;
}

// ------------------------------------------------------------------------------------------------ initializers

Value& Graph::add_initializer(std::string name, Tensor tensor) {
  if (Value* found = find_initializer(name)) {
    if (found->tensor_->identity() == tensor.identity()) return *found;
    throw GraphError(fmt::format("graph '{}' has another initializer named '{}'; choose another name", name_, name));
  }
  OwnedValue value = make_value(nullptr, initializers_.size(), type_of(tensor), name);
  value->tensor_ = std::make_unique<const Tensor>(std::move(tensor));
  initializer_names_.emplace(std::move(name), value.get());
  return *initializers_.emplace_back(std::move(value));
}

Value* Graph::find_initializer(std::string_view name) const {
  const auto found = initializer_names_.find(name);
  return found == initializer_names_.end() ? nullptr : found->second;
}

void Graph::rename_initializer(Value& value, std::string name) {
  if (name == value.name_) return;
  if (find_initializer(name) != nullptr) {
    throw GraphError(fmt::format("graph '{}' has another initializer named '{}'; choose another name", name_, name));
  }
  initializer_names_.erase(value.name_);
  value.name_ = name;
  initializer_names_.emplace(std::move(name), &value);
}

void Graph::erase_unused_initializers() {
  std::erase_if(initializer_names_, [](const auto& entry) { return entry.second->is_unused(); });
  std::erase_if(initializers_, [](const auto& value) { return value->is_unused(); });
  for (std::size_t k = 0; k < initializers_.size(); ++k) initializers_[k]->index_ = k;
}

// ------------------------------------------------------------------------------------------------ outputs

std::size_t Graph::output_count() const { return return_->inputs_.size(); }

Value* Graph::find_output(std::size_t i) const { return return_->find_input(i); }

Value& Graph::output(std::size_t i) const {
  if (Value* value = find_output(i)) return *value;
  if (i < output_count()) throw GraphError(fmt::format("output {} of graph '{}' is None", i, name_));
  throw GraphError(fmt::format("graph '{}' has {} outputs, no output {}", name_, output_count(), i));
}

std::vector<Value*> Graph::outputs() const {
  std::vector<Value*> values;
  for (const Use& use : return_->inputs_) values.push_back(use.value());
  return values;
}

const std::string& Graph::output_name(std::size_t i) const {
  if (i < output_names_.size()) return output_names_[i];
  throw GraphError(fmt::format("graph '{}' has {} outputs, no output {}", name_, output_count(), i));
}

void Graph::add_output(Value* value, std::string name) {
  return_->append_input(value);
  output_names_.push_back(std::move(name));
}

void Graph::set_output(std::size_t i, Value* value) {
  output_name(i);
  return_->set_input(i, value);
}

void Graph::set_output_name(std::size_t i, std::string name) {
  output_name(i);
  output_names_[i] = std::move(name);
}

void Graph::erase_output(std::size_t i) {
  output_name(i);
  return_->erase_operand(i);
  output_names_.erase(output_names_.begin() + static_cast<std::ptrdiff_t>(i));
}

// ------------------------------------------------------------------------------------------------ nodes

Node& Graph::append(NodeSpec spec) { return link(std::move(spec), nullptr); }

Node& Graph::insert_before(Node& where, NodeSpec spec) {
  require_member(where);
  return link(std::move(spec), &where);
}

Node& Graph::insert_after(Node& where, NodeSpec spec) {
  require_member(where);
  return link(std::move(spec), where.next_);
}

void Graph::require_member(const Node& node) const {
  if (node.graph_ != this) throw GraphError(fmt::format("{} is not a node of graph '{}'", describe(node), name_));
  if (node.erased_) throw GraphError(fmt::format("{} was erased from graph '{}'", describe(node), name_));
}

Node& Graph::link(NodeSpec spec, Node* before) {
  OwnedNode node = make_node(std::move(spec.domain), std::move(spec.op), spec.is_torch);
  node->name_ = std::move(spec.name);
  node->source_ = spec.source;
  node->arguments_ = std::move(spec.arguments);
  node->inputs_.reserve(spec.inputs.size());
  for (Value* value : spec.inputs) node->append_input(value);
  node->outputs_.reserve(spec.outputs.size());
  for (Type& type : spec.outputs) node->append_output(std::move(type));
  node->attributes_.reserve(spec.attributes.size());
  for (auto& [name, value] : spec.attributes) node->set_attribute(std::move(name), std::move(value));
  owned_.push_back(std::move(node));
  link_before(*owned_.back(), before);
  return *owned_.back();
}

void Graph::link_before(Node& node, Node* before) {
  Node* previous = before ? before->previous_ : last_;
  node.previous_ = previous;
  node.next_ = before;
  (previous ? previous->next_ : first_) = &node;
  (before ? before->previous_ : last_) = &node;
  ++node_count_;
  number(node);
}

void Graph::unlink(Node& node) {
  (node.previous_ ? node.previous_->next_ : first_) = node.next_;
  (node.next_ ? node.next_->previous_ : last_) = node.previous_;
  --node_count_;
}

// Between its neighbours if there is room; else the next question about the order renumbers all.
void Graph::number(Node& node) {
  const std::size_t low = node.previous_ ? node.previous_->order_ : 0;
  if (node.next_ == nullptr) {
    is_numbered_ = is_numbered_ && low < kOrderOfReturn - 2 * kOrderStep;
    node.order_ = is_numbered_ ? low + kOrderStep : 0;
    return;
  }
  const std::size_t high = node.next_->order_;
  is_numbered_ = is_numbered_ && high - low > 1;
  node.order_ = is_numbered_ ? low + (high - low) / 2 : 0;
}

void Graph::renumber() const {
  std::size_t order = 0;
  for (Node* node = first_; node != nullptr; node = node->next_) node->order_ = order += kOrderStep;
  is_numbered_ = true;
}

}  // namespace exportguard::ir
