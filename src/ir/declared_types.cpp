#include "exportguard/ir/declared_types.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <ranges>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "exportguard/common/errors.h"
#include "exportguard/ir/inference.h"

namespace exportguard::ir {
namespace {

std::set<std::string> symbols_of_inputs(const Graph& graph) {
  std::set<std::string> symbols;
  for (const auto& input : graph.inputs()) {
    for (const Dim& dim : input->type().shape.value_or(Shape{})) {
      if (dim.is_constant()) continue;
      for (const std::string& symbol : dim.symbols()) symbols.insert(symbol);
    }
  }
  return symbols;
}

/// Whether two expressions are the same number, tried with sizes that no arithmetic takes for one another.
bool agree(const Dim& a, const Dim& b, const std::set<std::string>& symbols) {
  for (const std::int64_t first : {1, 1009, 10007}) {
    std::map<std::string, std::int64_t> sizes;
    for (const std::string& symbol : symbols) sizes[symbol] = first + (first > 1 ? 12 * std::ssize(sizes) : 0);
    const auto number = a.evaluate(sizes);
    if (!number || number != b.evaluate(sizes)) return false;
  }
  return true;
}

/// Of a shape the rank stays.
void forget_sizes(Model& model, Value& value) {
  if (!value.type().shape) return;
  Shape shape;
  for (std::size_t i = 0; i < value.type().shape->size(); ++i) shape.push_back(fresh_symbol(model));
  value.set_type(Type::tensor(value.dtype(), std::move(shape)));
}

constexpr std::size_t kLoopState = 2;  // behind the number of the turn and the condition

/// Inputs of a node's nested graph whose types follow from its operands. Whether a Loop gives the number of the turn
/// and the condition as single numbers or as lists of one is told by the body alone.
auto inputs_of_operands(const Node& node, const Graph& body) {
  return body.inputs() | std::views::drop(node.is("", "Loop") ? kLoopState : 0);
}

/// Inputs of nested graphs too: a loop's are what the file says of them.
void forget_sizes(Model& model, Graph& graph) {
  for (Node& node : graph) {
    for (std::size_t i = 0; i < node.output_count(); ++i) forget_sizes(model, node.output(i));
    for (Graph* nested : node.subgraphs()) {
      for (const auto& input : inputs_of_operands(node, *nested)) forget_sizes(model, *input);
      forget_sizes(model, *nested);
    }
  }
}

/// Everything but the operands: what a file says within a function was so for one call, or for none.
void forget_types(Graph& graph) {
  for (Node& node : graph) {
    for (std::size_t i = 0; i < node.output_count(); ++i) node.output(i).set_type({});
    for (Graph* nested : node.subgraphs()) {
      for (const auto& input : inputs_of_operands(node, *nested)) input->set_type({});
      forget_types(*nested);
    }
  }
}

int opset_of(const std::map<std::string, std::int64_t>& opsets, int fallback) {
  const auto opset = opsets.find("");
  return opset == opsets.end() ? fallback : static_cast<int>(opset->second);
}

using Types = std::vector<Type>;

/// Types of the results that calls of local functions have, and types in their bodies that hold at every call.
class Calls {
 public:
  explicit Calls(Model& model) : model_(model) {
    for (Function& function : model.functions) functions_[{function.domain, function.name}] = {&function, {}, false};
  }

  bool is_call(const Node& node) const { return functions_.contains({node.domain(), node.op()}); }
  /// What the body makes of the operands. Nothing of what is not told; sizes that they do not tell are fresh.
  Types results(const Node& call);
  /// Gives the bodies the types that hold at every call that `results` was asked for.
  void settle();
  /// Whether there were more nodes to look at than any file needs.
  bool is_exhausted() const { return visits_ > kMostVisits; }

 private:
  static constexpr std::size_t kMostVisits = 200'000;

  struct Called {
    Function* function = nullptr;
    std::map<std::string, std::pair<Types, Types>> known;  // operands as text → operands, results
    bool is_inside = false;                                // a function that calls itself is an error elsewhere
  };

  Types inferred(Called& called, const Types& operands);
  void infer_body(Called& called, const Types& operands);
  Types joined(const Called& called);
  Type joined(const Type& a, const Type& b);
  void add_callees(const Graph& graph, std::vector<Called*>& order, std::set<Called*>& seen);
  int opset() const { return opset_of(model_.opsets, 0); }

  Model& model_;
  std::map<std::pair<std::string, std::string>, Called> functions_;
  std::size_t visits_ = 0;
};

/// One walk over a graph, and whether what its file says of sizes can be so.
class Walk {
 public:
  enum class Names : std::uint8_t {
    kOfTheFile,  ///< stay for sizes that the inputs tell under another name
    kForgotten,  ///< nobody gave them
  };

  Walk(Model& model, Graph& graph, int opset, Calls& calls, Names names = Names::kOfTheFile)
      : graph_(graph),
        symbols_(symbols_of_inputs(graph)),
        known_{model, elements_, opset},
        calls_(calls),
        opset_(opset),
        keeps_names_(names == Names::kOfTheFile) {}

  void run() { infer(graph_); }
  bool is_contradicted() const { return is_contradicted_ || calls_.is_exhausted(); }

 private:
  void infer(Graph& graph) {
    for (Node& node : graph) {
      if (!node.is_torch()) infer(node);
    }
  }

  void infer(Node& node) {
    if (node.is("", "Scan") && opset_ >= 9) tell_slices(node);
    if (node.is("", "Loop")) tell_state(node);
    for (Graph* nested : node.subgraphs()) infer(*nested);
    const InferredTypes inferred = types_of(node);
    for (std::size_t i = 0; i < node.output_count(); ++i) {
      node.output(i).set_type(joined(node.output(i).type(), inferred.types[i]));
    }
    if (inferred.elements) elements_.set(node.output(), *inferred.elements);
  }

  // A file need not tell what the body of a Scan is given: its operands without the axis that is gone through.
  void tell_slices(const Node& scan) {
    const auto* count = std::get_if<std::int64_t>(scan.find_attribute("num_scan_inputs"));
    const auto* axes = std::get_if<std::vector<std::int64_t>>(scan.find_attribute("scan_input_axes"));
    const auto operands = static_cast<std::int64_t>(scan.input_count());
    const std::vector<Graph*> bodies = scan.subgraphs();
    const bool is_sound = count && *count >= 0 && *count <= operands && bodies.size() == 1 &&
                          bodies[0]->inputs().size() == scan.input_count() && (!axes || std::ssize(*axes) == *count);
    for (std::int64_t i = 0; is_sound && i < *count; ++i) {
      const auto at = static_cast<std::size_t>(operands - *count + i);
      const Value* operand = scan.find_input(at);
      if (operand == nullptr || !operand->type().shape) continue;
      Type slice = operand->type();
      const auto rank = std::ssize(*slice.shape);
      const std::int64_t given = axes ? (*axes)[static_cast<std::size_t>(i)] : 0;
      const std::int64_t axis = given < 0 ? given + rank : given;
      if (axis < 0 || axis >= rank) continue;
      slice.shape->erase(slice.shape->begin() + axis);
      Value& input = *bodies[0]->inputs()[at];
      input.set_type(joined(input.type(), slice));
    }
  }

  // What goes from turn to turn keeps its dtype; its sizes may change.
  void tell_state(const Node& loop) {
    for (const Graph* body : loop.subgraphs()) {
      const std::size_t count = std::min(loop.input_count(), body->inputs().size());
      for (std::size_t i = kLoopState; i < count; ++i) {
        const Value* operand = loop.find_input(i);
        if (operand == nullptr || operand->type().kind != Type::Kind::kTensor) continue;
        Value& input = *body->inputs()[i];
        input.set_type(joined(input.type(), Type::tensor(operand->dtype())));
      }
    }
  }

  // What no input could make right tells that sizes which the file says are not so, or stands in a branch that no run
  // takes; that is no matter of what reads the file.
  InferredTypes types_of(const Node& node) {
    InferredTypes nothing{Types(node.output_count()), std::nullopt};
    if (calls_.is_call(node)) return {calls_.results(node), std::nullopt};
    std::vector<Value*> inputs;
    for (std::size_t i = 0; i < node.input_count(); ++i) inputs.push_back(node.find_input(i));
    try {
      return ir::infer({node.domain(), node.op(), inputs, node.attributes(), node.output_count(), node.source()},
                       known_);
    } catch (const GraphError&) {
      is_contradicted_ = true;
      return nothing;
    } catch (const Overflow&) {  // a size that no number holds
      return nothing;
    }
  }

  Type joined(const Type& declared, const Type& inferred) {
    if (inferred.kind != declared.kind) return declared.dtype == DType::kUndefined ? inferred : declared;
    Type result = declared;
    if (result.dtype == DType::kUndefined) result.dtype = inferred.dtype;
    if (!inferred.shape) return result;
    if (result.shape && result.shape->size() == inferred.shape->size()) {
      for (std::size_t i = 0; i < result.shape->size(); ++i) {
        (*result.shape)[i] = joined((*result.shape)[i], (*inferred.shape)[i]);
      }
      return result;
    }
    is_contradicted_ = is_contradicted_ || result.shape.has_value();
    result.shape = inferred.shape;
    return result;
  }

  Dim joined(const Dim& declared, const Dim& inferred) {
    if (declared == inferred) return inferred;
    if (!is_told(inferred)) return declared;
    const bool is_another_name = !declared.is_constant() && !is_told(declared);
    if (is_another_name && names_.try_emplace(declared.str(), inferred).first->second == inferred) {
      return inferred.is_constant() || !keeps_names_ ? inferred : declared;
    }
    if (is_told(declared) && agree(declared, inferred, symbols_)) return inferred.is_constant() ? inferred : declared;
    is_contradicted_ = true;
    return inferred;
  }

  /// Whether the inputs' sizes tell this one, or it is a number.
  bool is_told(const Dim& size) const {
    return size.is_constant() ||
           std::ranges::all_of(size.symbols(), [&](const std::string& symbol) { return symbols_.contains(symbol); });
  }

  Graph& graph_;
  std::set<std::string> symbols_;
  KnownElements elements_;
  InferenceContext::Known known_;
  Calls& calls_;
  int opset_;
  bool keeps_names_;
  std::unordered_map<std::string, Dim> names_;  // that the file has for a size which the inputs tell
  bool is_contradicted_ = false;
};

// ------------------------------------------------------------------------------------------------ calls

/// A type that says nothing of values, as another call has others.
Type without_value(Type type) {
  type.value.reset();
  return type;
}

Types Calls::results(const Node& call) {
  Called& called = functions_.at({call.domain(), call.op()});
  const Function& function = *called.function;
  Types nothing(call.output_count());
  const bool fits = call.input_count() <= function.body->input_count() &&
                    call.output_count() <= function.body->output_count() && function.attributes.empty();
  if (!fits) return nothing;
  Types operands(function.body->input_count());
  for (std::size_t i = 0; i < call.input_count(); ++i) {
    if (const Value* operand = call.find_input(i)) operands[i] = without_value(operand->type());
  }

  std::set<std::string> told;
  for (const Type& type : operands) {
    for (const Dim& dim : type.shape.value_or(Shape{})) {
      const auto symbols = dim.symbols();
      told.insert(symbols.begin(), symbols.end());
    }
  }
  Types results = inferred(called, operands);
  results.resize(call.output_count());
  for (Type& type : results) {
    if (!type.shape) continue;
    for (Dim& dim : *type.shape) {
      const auto symbols = dim.symbols();
      const bool is_told = std::ranges::all_of(symbols, [&](const std::string& name) { return told.contains(name); });
      if (!is_told) dim = fresh_symbol(model_);
    }
  }
  return results;
}

Types Calls::inferred(Called& called, const Types& operands) {
  std::string key;
  for (const Type& type : operands) key += type.str() + ";";
  if (const auto known = called.known.find(key); known != called.known.end()) return known->second.second;
  if (called.is_inside || is_exhausted()) return {};
  infer_body(called, operands);
  Types results;
  for (const Value* value : called.function->body->outputs())
    results.push_back(value != nullptr ? without_value(value->type()) : Type{});
  called.known.emplace(std::move(key), std::pair{operands, results});
  return results;
}

void Calls::infer_body(Called& called, const Types& operands) {
  Graph& body = *called.function->body;
  visits_ += body.node_count() + 1;
  forget_types(body);
  for (std::size_t i = 0; i < operands.size(); ++i) body.inputs()[i]->set_type(operands[i]);
  called.is_inside = true;
  Walk(model_, body, opset_of(called.function->opsets, opset()), *this).run();
  called.is_inside = false;
}

Type Calls::joined(const Type& a, const Type& b) {
  if (a == b) return a;
  if (a.kind != b.kind || a.dtype != b.dtype) return {};
  Type result = a;
  if (a.rank() != b.rank()) result.shape.reset();
  if (!result.shape) return result;
  for (std::size_t i = 0; i < result.shape->size(); ++i) {
    if ((*a.shape)[i] != (*b.shape)[i]) (*result.shape)[i] = fresh_symbol(model_);
  }
  return result;
}

Types Calls::joined(const Called& called) {
  Types types;
  for (const auto& [text, known] : called.known) {
    if (types.empty()) types = known.first;
    for (std::size_t i = 0; i < types.size(); ++i) types[i] = joined(types[i], known.first[i]);
  }
  return types;
}

// Those that are called come behind all that call them.
void Calls::add_callees(const Graph& graph, std::vector<Called*>& order, std::set<Called*>& seen) {
  for (const Node& node : graph) {
    for (const Graph* nested : node.subgraphs()) add_callees(*nested, order, seen);
    const auto found = functions_.find({node.domain(), node.op()});
    if (found == functions_.end() || !seen.insert(&found->second).second) continue;
    add_callees(*found->second.function->body, order, seen);
    order.push_back(&found->second);
  }
}

void Calls::settle() {
  std::vector<Called*> order;
  std::set<Called*> seen;
  add_callees(*model_.graph, order, seen);
  for (Called* called : order | std::views::reverse) {
    if (!called->function->attributes.empty()) continue;
    if (called->known.empty() || is_exhausted()) {
      forget_types(*called->function->body);
    } else {
      infer_body(*called, joined(*called));
    }
  }
}

}  // namespace

void forget_types_of_functions(Model& model) {
  for (Function& function : model.functions) {
    if (function.attributes.empty()) forget_types(*function.body);
  }
}

// Bodies settle once sizes that the file says wrongly are forgotten, as operands have them.
void infer_declared(Model& model) {
  const int opset = opset_of(model.opsets, 0);
  Calls first_calls(model);
  Walk first(model, *model.graph, opset, first_calls);
  first.run();
  if (!first.is_contradicted()) return first_calls.settle();
  forget_sizes(model, *model.graph);
  Calls calls(model);
  Walk(model, *model.graph, opset, calls, Walk::Names::kForgotten).run();
  calls.settle();
}

}  // namespace exportguard::ir
