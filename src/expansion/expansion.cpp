#include "exportguard/expansion/expansion.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "expansion/canonical_call.h"

namespace exportguard::expansion {
namespace {

/// Python's arithmetic, control flow and what has no effect on values are no operators that torch can take apart.
bool can_be_traced(const ir::Node& node) {
  static const std::unordered_set<std::string> others = {"builtins", "exportguard", "higher_order",
                                                         "math",     "operator",    "torch"};
  return node.is_torch() && node.output_count() > 0 && !others.contains(node.domain());
}

/// The lowering knows these from the sizes of tensors.
bool is_known_size(const ir::Node& node) {
  return node.output_count() == 1 && node.output().type().is_scalar && node.output().type().value.has_value();
}

class Expander {
 public:
  explicit Expander(const ExpansionOptions& options) : options_(options) {}

  void expand(ir::Graph& graph) {
    for (ir::Node& node : graph) {
      for (ir::Graph* body : node.subgraphs()) expand(*body);
      if (!can_be_traced(node) || is_known_size(node) || options_.is_known(node)) continue;
      CanonicalCall call(node);
      if (const ir::Graph* expansion = find_expansion(node, call)) replace(node, *expansion, call);
    }
  }

  std::size_t replaced() const { return replaced_; }

 private:
  const ir::Graph* find_expansion(const ir::Node& node, const CanonicalCall& call);
  std::unique_ptr<ir::Graph> traced(const ir::Node& node, const CanonicalCall& call);
  void replace(ir::Node& node, const ir::Graph& expansion, CanonicalCall& call);
  void restore(ir::Node* first, const ir::Node* end, CanonicalCall& call);
  void restore(ir::Type& type, CanonicalCall& call);

  const ExpansionOptions& options_;
  std::unordered_map<std::string, std::unique_ptr<ir::Graph>> expansions_;  // null: torch has none
  std::set<std::string> active_;  // operators whose expansion is being expanded
  std::size_t replaced_ = 0;
  std::size_t fresh_symbols_ = 0;
};

const ir::Graph* Expander::find_expansion(const ir::Node& node, const CanonicalCall& call) {
  if (const auto found = expansions_.find(call.key()); found != expansions_.end()) return found->second.get();
  if (!active_.insert(node.qualified_name()).second) return nullptr;  // it is part of its own expansion
  std::unique_ptr<ir::Graph> graph = traced(node, call);
  if (graph != nullptr) expand(*graph);
  active_.erase(node.qualified_name());
  return (expansions_[call.key()] = std::move(graph)).get();
}

std::unique_ptr<ir::Graph> Expander::traced(const ir::Node& node, const CanonicalCall& call) {
  std::unique_ptr<ir::Graph> graph = options_.trace(call.call());
  if (graph == nullptr) return nullptr;
  const bool fits = graph->input_count() == node.input_count() && graph->output_count() == node.output_count();
  return fits ? std::move(graph) : nullptr;
}

void Expander::replace(ir::Node& node, const ir::Graph& expansion, CanonicalCall& call) {
  ir::Graph& graph = node.graph();
  std::vector<ir::Value*> operands;
  for (std::size_t i = 0; i < node.input_count(); ++i) operands.push_back(node.find_input(i));
  const ir::Node* before = node.previous();
  const std::vector<ir::Value*> results = graph.splice(expansion, operands, &node);
  ir::Node* first = before ? before->next() : graph.first();
  for (ir::Node* made = first; made != &node; made = made->next()) made->set_source(node.source());
  restore(first, &node, call);

  const std::set<ir::Value*> given(operands.begin(), operands.end());
  for (std::size_t i = 0; i < node.output_count(); ++i) {
    if (results[i] == nullptr) continue;
    if (results[i]->producer() != nullptr && !given.contains(results[i])) {
      results[i]->set_type(node.output(i).type());
      results[i]->set_name(node.output(i).name());
    }
    node.output(i).replace_all_uses_with(*results[i]);
  }
  graph.erase(node);
  ++replaced_;
}

/// Gives the types of the nodes from `first` to `end` the symbols of the graph back. A symbol that the expansion
/// brought with it becomes a new one.
void Expander::restore(ir::Node* first, const ir::Node* end, CanonicalCall& call) {
  for (ir::Node* node = first; node != end; node = node->next()) {
    for (std::size_t i = 0; i < node->output_count(); ++i) {
      ir::Type type = node->output(i).type();
      restore(type, call);
      node->output(i).set_type(std::move(type));
    }
    for (ir::Graph* body : node->subgraphs()) {
      for (const auto& input : body->inputs()) {
        ir::Type type = input->type();
        restore(type, call);
        input->set_type(std::move(type));
      }
      restore(body->first(), nullptr, call);
    }
  }
}

void Expander::restore(ir::Type& type, CanonicalCall& call) {
  const auto restored = [&](const SymExpr& expression) {
    for (const std::string& symbol : expression.symbols()) {
      if (!call.knows(symbol)) call.add(symbol, SymExpr::symbol(fmt::format("expanded_{}", fresh_symbols_++)));
    }
    return call.original(expression);
  };
  if (type.value) type.value = restored(*type.value);
  if (!type.shape) return;
  for (ir::Dim& dim : *type.shape) dim = restored(dim);
}

}  // namespace

std::size_t expand(ir::Model& model, const ExpansionOptions& options) {
  Expander expander(options);
  expander.expand(*model.graph);
  model.graph->sweep();
  return expander.replaced();
}

}  // namespace exportguard::expansion
