#include "exportguard/optimizer/outline.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "exportguard/ir/congruence.h"
#include "ir/copier.h"

namespace exportguard::optimizer {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

/// Nodes of one module, and the first node outside of it that is computed from one of them.
struct Run {
  std::vector<Node*> nodes;
  Node* dependent = nullptr;
};

bool is_within(const Node& node, std::string_view path) {
  const std::string_view module = node.source() ? std::string_view(node.source()->module) : std::string_view();
  return module.starts_with(path) && (module.size() == path.size() || module[path.size()] == '.');
}

void for_each_operand(const Node& node, const std::function<void(Value&)>& visit) {
  for (std::size_t i = 0; i < node.input_count(); ++i)
    if (Value* operand = node.find_input(i)) visit(*operand);
  for (const Graph* body : node.subgraphs()) {
    for (const Node& inner : *body) for_each_operand(inner, visit);
    for (Value* output : body->outputs())
      if (output) visit(*output);
  }
}

using Nodes = std::unordered_set<const Node*>;

bool reads_any(const Node& node, const Nodes& producers) {
  bool found = false;
  for_each_operand(node, [&](const Value& operand) { found = found || producers.contains(operand.producer()); });
  return found;
}

/// The nodes of the module, cut wherever one of them is computed from a node outside that is computed from an earlier
/// one: a call there would have to come before and behind it.
std::vector<Run> runs_of(const Graph& graph, std::string_view path) {
  std::vector<Run> runs;
  Nodes inside;
  Nodes behind;
  const auto begin_run = [&] {
    runs.emplace_back();
    inside.clear();
    behind.clear();
  };

  for (Node& node : graph) {
    const bool has_run = !runs.empty() && !inside.empty();
    if (is_within(node, path)) {
      if (!has_run || reads_any(node, behind)) begin_run();
      runs.back().nodes.push_back(&node);
      inside.insert(&node);
    } else if (has_run && (!behind.empty() || reads_any(node, inside))) {
      // What comes behind the first of them is taken for dependent as well, since the call comes before it.
      if (behind.empty()) runs.back().dependent = &node;
      behind.insert(&node);
    }
  }

  return runs;
}

/// What is arithmetic rather than a weight.
bool is_own_constant(const Value& value) {
  constexpr std::int64_t kFew = 64;
  const ir::Tensor* tensor = value.initializer();
  if (tensor == nullptr) return false;
  const bool counts = value.dtype() == DType::kBool || is_integral(value.dtype());
  return tensor->numel() == 1 || (counts && tensor->numel() <= kFew);
}

/// A body under construction, with what its call reads and gives.
struct Outlined {
  std::unique_ptr<Graph> body;
  std::vector<Value*> operands;
  std::vector<Value*> results;
};

class Outliner {
 public:
  Outliner(const Graph& graph, const Run& run) : graph_(graph), run_(run), inside_(run.nodes.begin(), run.nodes.end()) {
    made_.body = std::make_unique<Graph>("body");
  }

  Outlined outline() {
    for (Node* node : run_.nodes) for_each_operand(*node, [&](Value& operand) { read(operand); });
    for (Node* node : run_.nodes) {
      copier_.copy_node(*node, *made_.body, nullptr);
      for (std::size_t i = 0; i < node->output_count(); ++i) give(node->output(i));
    }
    return std::move(made_);
  }

 private:
  void read(Value& operand) {
    const bool is_outer = &operand.graph() == &graph_ && !inside_.contains(operand.producer());
    if (!is_outer || !seen_.insert(&operand).second) return;
    if (is_own_constant(operand)) {
      const std::string name = fmt::format("constant_{}", constants_++);
      copier_.map(operand, &made_.body->add_initializer(name, *operand.initializer()));
      return;
    }
    const std::string name = fmt::format("input_{}", made_.operands.size());
    copier_.map(operand, &made_.body->add_input(name, operand.type()));
    made_.operands.push_back(&operand);
  }

  void give(Value& value) {
    const auto is_outside = [&](const ir::Use* use) {
      const Node* user = &use->user();
      while (&user->graph() != &graph_ && user->graph().parent() != nullptr) user = user->graph().parent();
      return !inside_.contains(user);
    };
    if (std::ranges::none_of(value.uses(), is_outside)) return;
    made_.body->add_output(copier_.find(&value), fmt::format("output_{}", made_.results.size()));
    made_.results.push_back(&value);
  }

  const Graph& graph_;
  const Run& run_;
  Nodes inside_;
  ir::Copier copier_;
  std::unordered_set<const Value*> seen_;
  std::size_t constants_ = 0;
  Outlined made_;
};

class ModuleOutliner {
 public:
  explicit ModuleOutliner(ir::Model& model) : model_(model) {}

  std::size_t outline(const std::string& path, const FunctionName& name) {
    std::size_t calls = 0;
    for (const Run& run : runs_of(*model_.graph, path)) calls += replace(run, path, name) ? 1 : 0;
    return calls;
  }

 private:
  bool replace(const Run& run, const std::string& path, const FunctionName& name) {
    Outlined outlined = Outliner(*model_.graph, run).outline();
    if (outlined.results.empty()) return false;

    ir::NodeSpec spec;
    spec.domain = name.domain;
    spec.inputs = outlined.operands;
    spec.outputs.clear();
    for (const Value* result : outlined.results) spec.outputs.push_back(result->type());
    spec.source = ir::intern({.target = {}, .module = path, .type = name.name, .file = {}, .line = 0, .code = {}});
    spec.op = function_for(std::move(outlined.body), name);

    Graph& graph = *model_.graph;
    Node* behind = run.dependent ? run.dependent : run.nodes.back()->next();
    Node& call = behind ? graph.insert_before(*behind, std::move(spec)) : graph.append(std::move(spec));
    for (std::size_t i = 0; i < outlined.results.size(); ++i) {
      call.output(i).set_name(outlined.results[i]->name());
      outlined.results[i]->replace_all_uses_with(call.output(i));
    }

    for (auto node = run.nodes.rbegin(); node != run.nodes.rend(); ++node) graph.erase(**node);
    return true;
  }

  /// The name of a function with this body: one that there is, or a new one.
  std::string function_for(std::unique_ptr<Graph> body, const FunctionName& name) {
    std::vector<std::string>& known = names_[name];
    for (const std::string& taken : known)
      if (ir::first_difference(*find(name.domain, taken)->body, *body).empty()) return taken;
    std::string free = name.name;
    for (int k = 2; find(name.domain, free) != nullptr; ++k) free = fmt::format("{}_{}", name.name, k);
    model_.opsets.emplace(name.domain, 1);
    model_.functions.push_back({name.domain, free, {}, std::move(body), {}});
    return known.emplace_back(std::move(free));
  }

  const ir::Function* find(std::string_view domain, std::string_view name) const {
    const auto found = std::ranges::find_if(model_.functions, [&](const ir::Function& function) {
      return function.domain == domain && function.name == name;
    });
    return found == model_.functions.end() ? nullptr : &*found;
  }

  ir::Model& model_;
  std::map<FunctionName, std::vector<std::string>> names_;
};

std::size_t depth(const std::string& path) { return static_cast<std::size_t>(std::ranges::count(path, '.')); }

}  // namespace

std::size_t outline_modules(ir::Model& model, const std::map<std::string, FunctionName>& modules) {
  std::vector<const std::pair<const std::string, FunctionName>*> inner_first;
  for (const auto& module : modules) inner_first.push_back(&module);
  std::ranges::stable_sort(inner_first, std::ranges::greater(),
                           [](const auto* module) { return depth(module->first); });

  const std::size_t known = model.functions.size();
  ModuleOutliner outliner(model);
  std::size_t calls = 0;
  for (const auto* module : inner_first) calls += outliner.outline(module->first, module->second);

  for (std::size_t i = known; i < model.functions.size(); ++i) model.functions[i].opsets = model.opsets;
  model.graph->erase_unused_initializers();
  return calls;
}

}  // namespace exportguard::optimizer
