#include <algorithm>
#include <utility>

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

// The whole list of operands goes in front of the other's, as if each had been linked anew.
void Value::replace_all_uses_with(Value& other) {
  if (this == &other || first_use_ == nullptr) return;
  Use* last = first_use_;
  for (;; last = last->next_) {
    last->value_ = &other;
    if (last->next_ == nullptr) break;
  }
  last->next_ = other.first_use_;
  if (last->next_ != nullptr) last->next_->prev_ = &last->next_;
  other.first_use_ = std::exchange(first_use_, nullptr);
  other.first_use_->prev_ = &other.first_use_;
}

}  // namespace exportguard::ir
