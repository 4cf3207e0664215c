#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "exportguard/common/errors.h"
#include "optimizer/passes.h"

namespace exportguard::optimizer {
namespace {

constexpr std::size_t kDeepest = 64;            // calls within calls
constexpr std::size_t kMostNodes = 10'000'000;  // a small file can call for more than any memory holds

bool is_within(std::string_view module, std::string_view path) {
  return module.starts_with(path) && (module.size() == path.size() || module[path.size()] == '.');
}

void for_each_node(const ir::Graph& graph, const std::function<void(const ir::Node&)>& visit) {
  for (const ir::Node& node : graph) {
    visit(node);
    for (const ir::Graph* nested : node.subgraphs()) for_each_node(*nested, visit);
  }
}

/// Puts the bodies of local functions in the place of their calls. The nodes of a body say which module they were taken
/// from, which is that of one call; behind another call they are of that one's.
class Inliner {
 public:
  explicit Inliner(ir::Model& model) : model_(model) {
    for (const ir::Function& function : model.functions) functions_[{function.domain, function.name}] = &function;
    std::map<const ir::Function*, std::set<std::string>> callers;
    const auto note = [&](const ir::Node& node) {
      if (const ir::Function* called = find(node); called != nullptr && node.source() != nullptr)
        callers[called].insert(node.source()->module);
    };
    for_each_node(*model.graph, note);
    for (const ir::Function& function : model.functions) for_each_node(*function.body, note);
    for (const auto& [function, modules] : callers) note_origin(*function, modules);
  }

  std::size_t inline_in(ir::Graph& graph, std::size_t depth = 0) {
    std::size_t count = 0;
    ir::Node* next = nullptr;
    for (ir::Node* node = graph.first(); node != nullptr; node = next) {
      next = node->next();
      for (ir::Graph* nested : node->subgraphs()) count += inline_in(*nested, depth);
      const ir::Function* function = find(*node);
      if (function == nullptr) continue;
      require_end(*function, depth);
      count += 1 + replace(*node, *function, depth);
    }
    return count;
  }

 private:
  const ir::Function* find(const ir::Node& node) const {
    if (node.is_torch()) return nullptr;
    const auto found = functions_.find({node.domain(), node.op()});
    if (found == functions_.end()) return nullptr;
    const ir::Function& function = *found->second;
    // What a call passes as attributes stands nowhere in the body, and an operator of another opset is another one.
    return function.attributes.empty() && has_same_opsets(function) ? &function : nullptr;
  }

  bool has_same_opsets(const ir::Function& function) const {
    return std::ranges::all_of(function.opsets, [&](const auto& opset) {
      const auto own = model_.opsets.find(opset.first);
      return own == model_.opsets.end() || own->second == opset.second;
    });
  }

  void require_end(const ir::Function& function, std::size_t depth) {
    if (depth < kDeepest) return;
    throw GraphError(fmt::format("function {}::{} is called {} calls deep; does it call itself?", function.domain,
                                 function.name, depth));
  }

  void note_origin(const ir::Function& function, const std::set<std::string>& modules) {
    for (const std::string& path : modules) {
      bool holds_all = !path.empty();
      for_each_node(*function.body, [&](const ir::Node& node) {
        const std::string module = node.source() != nullptr ? node.source()->module : std::string();
        holds_all = holds_all && (module.empty() || is_within(module, path));
      });
      if (holds_all) origins_[&function] = path;
    }
  }

  /// The node's place, if it were in the module of the call and not in that which the body was taken from.
  static void move_place(ir::Node& node, const std::string& origin, const ir::Source& call) {
    if (node.source() != nullptr && is_within(node.source()->module, origin)) {
      ir::Source moved = *node.source();
      moved.module = call.module + moved.module.substr(origin.size());
      node.set_source(ir::intern({moved.target, moved.module, moved.type, moved.file, moved.line, moved.code}));
    }
    for (ir::Graph* nested : node.subgraphs()) {
      for (ir::Node& inner : *nested) move_place(inner, origin, call);
    }
  }

  std::size_t replace(ir::Node& call, const ir::Function& function, std::size_t depth) {
    ir::Graph& graph = call.graph();
    const ir::Graph& body = *function.body;
    if (call.input_count() > body.input_count() || call.output_count() > body.output_count()) {
      throw GraphError(fmt::format("function {}::{} takes {} operands and has {} outputs, got a call with {} and {}",
                                   function.domain, function.name, body.input_count(), body.output_count(),
                                   call.input_count(), call.output_count()));
    }

    std::vector<ir::Value*> operands;
    for (std::size_t i = 0; i < body.input_count(); ++i) operands.push_back(call.find_input(i));
    ir::Node* previous = call.previous();
    ir::Node* next = call.next();
    const ir::Source* source = call.source();

    const std::vector<ir::Value*> results = graph.splice(body, operands, &call);
    for (std::size_t i = 0; i < call.output_count(); ++i) {
      if (call.output(i).is_unused()) continue;
      if (results[i] == nullptr) {
        throw GraphError(fmt::format("output {} of function {}::{} is an operand that the call leaves out", i,
                                     function.domain, function.name));
      }
      if (results[i]->producer() != nullptr && results[i]->name().empty()) results[i]->set_name(call.output(i).name());
      if (results[i]->dtype() == DType::kUndefined) results[i]->set_type(call.output(i).type());
      call.output(i).replace_all_uses_with(*results[i]);
    }

    for (const auto& [domain, version] : function.opsets) model_.opsets.try_emplace(domain, version);
    graph.erase(call);
    const auto origin = origins_.find(&function);
    const bool moves = source != nullptr && origin != origins_.end() && origin->second != source->module;
    return inline_between(graph, previous, next, {source, moves ? &origin->second : nullptr}, depth);
  }

  /// What the nodes of a body are told: the place of the call, and the module that they move from, if they do.
  struct Place {
    const ir::Source* call;
    const std::string* origin;
  };

  /// The calls among the nodes that have come between those two.
  std::size_t inline_between(ir::Graph& graph, ir::Node* previous, ir::Node* end, const Place& place,
                             std::size_t depth) {
    std::size_t count = 0;
    ir::Node* next = nullptr;
    for (ir::Node* node = previous ? previous->next() : graph.first(); node != end; node = next) {
      next = node->next();
      if (++nodes_ > kMostNodes) {
        throw GraphError(fmt::format("local functions written out are more than {} nodes; keep them", kMostNodes));
      }
      if (place.origin != nullptr) move_place(*node, *place.origin, *place.call);
      if (node->source() == nullptr) node->set_source(place.call);
      for (ir::Graph* nested : node->subgraphs()) count += inline_in(*nested, depth + 1);
      const ir::Function* function = find(*node);
      if (function == nullptr) continue;
      require_end(*function, depth + 1);
      count += 1 + replace(*node, *function, depth + 1);
    }
    return count;
  }

  ir::Model& model_;
  std::map<std::pair<std::string, std::string>, const ir::Function*> functions_;
  std::map<const ir::Function*, std::string> origins_;  ///< paths of modules
  std::size_t nodes_ = 0;
};

bool is_called(const ir::Graph& graph, const ir::Function& function) {
  return std::ranges::any_of(graph, [&](const ir::Node& node) {
    const auto nested = node.subgraphs();
    return node.is(function.domain, function.name) ||
           std::ranges::any_of(nested, [&](const ir::Graph* body) { return is_called(*body, function); });
  });
}

bool is_called(const ir::Model& model, const ir::Function& function) {
  return is_called(*model.graph, function) || std::ranges::any_of(model.functions, [&](const ir::Function& other) {
           return &other != &function && is_called(*other.body, function);
         });
}

}  // namespace

std::size_t inline_functions(ir::Model& model) {
  if (model.functions.empty()) return 0;
  const std::size_t count = Inliner(model).inline_in(*model.graph);
  if (count == 0) return 0;
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    for (std::size_t i = model.functions.size(); i-- > 0;) {
      if (is_called(model, model.functions[i])) continue;
      model.functions.erase(model.functions.begin() + static_cast<std::ptrdiff_t>(i));
      is_changed = true;
    }
  }
  return count;
}

}  // namespace exportguard::optimizer
