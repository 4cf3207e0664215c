#include <algorithm>

#include "exportguard/ir/graph.h"

namespace exportguard::ir {

Value::Value(Graph& graph, Node* producer, std::size_t index, Type type, std::string name)
    : graph_(&graph), producer_(producer), index_(index), type_(std::move(type)), name_(std::move(name)) {}

// Graphs and their parts are destroyed in any order (a nested graph may outlive what it captured): operands that still
// read this value become operands that are left out.
Value::~Value() {
  while (first_use_ != nullptr) first_use_->unlink();
}

void Value::set_name(std::string name) {
  if (tensor_) {
    graph_->rename_initializer(*this, std::move(name));
  } else {
    name_ = std::move(name);
  }
}

Graph& Value::graph() const { return *graph_; }

std::size_t Value::use_count() const {
  std::size_t count = 0;
  for (const Use* use = first_use_; use != nullptr; use = use->next_) ++count;
  return count;
}

std::vector<Use*> Value::uses() const {
  std::vector<Use*> result;
  for (Use* use = first_use_; use != nullptr; use = use->next_) result.push_back(use);
  std::ranges::reverse(result);  // the list has the newest first
  return result;
}

void Value::replace_all_uses_with(Value& other) {
  if (this == &other) return;
  for (Use* use : uses()) use->link(&other);
}

}  // namespace exportguard::ir
