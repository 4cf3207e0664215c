#include <fmt/format.h>

#include "exportguard/common/errors.h"
#include "exportguard/ir/default_input.h"
#include "exportguard/ir/graph.h"
#include "ir/describe.h"

namespace exportguard::ir {
namespace {

/// An input that may be left out stays one, though nothing reads it.
bool is_dead(const Node& node) {
  if (node.output_count() == 0 || is_default_input(node)) return false;
  for (std::size_t i = 0; i < node.output_count(); ++i) {
    if (!node.output(i).is_unused()) return false;
  }
  return true;
}

}  // namespace

void Graph::move_before(Node& node, Node& where) {
  require_member(node);
  require_member(where);
  if (&node == &where) return;
  unlink(node);
  link_before(node, &where);
}

void Graph::erase(Node& node) {
  require_member(node);
  for (const auto& output : node.outputs_) {
    if (output->is_unused()) continue;
    const Node& user = output->uses().front()->user();
    throw GraphError(
        fmt::format("cannot erase {}: {} reads its output {}", describe(node), describe(user), output->index_));
  }
  release_operands(node);
  unlink(node);
  node.erased_ = true;  // next_ stays, so that an iterator that stands here finds its way
}

// The nested graphs of an erased node stay as they are, as the node does, but they keep nothing alive any more.
void Graph::release_operands(Node& node) {
  node.inputs_.clear();
  for (Graph* graph : node.subgraphs()) {
    graph->return_->inputs_.clear();
    graph->output_names_.clear();
    for (const auto& nested : graph->owned_) release_operands(*nested);
  }
}

void Graph::sweep() {
  std::erase_if(owned_, [](const auto& node) { return node->erased_; });
  for (const auto& node : owned_) {
    for (Graph* graph : node->subgraphs()) graph->sweep();
  }
}

// Users stand behind what they read, so one walk from the end meets every node after all its users.
std::size_t Graph::erase_dead_nodes() {
  std::size_t erased = 0;
  for (Node* node = last_; node != nullptr;) {
    Node* previous = node->previous_;
    if (is_dead(*node)) {
      erase(*node);
      ++erased;
    } else {
      for (Graph* graph : node->subgraphs()) erased += graph->erase_dead_nodes();
    }
    node = previous;
  }
  return erased;
}

}  // namespace exportguard::ir
