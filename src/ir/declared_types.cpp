#include "exportguard/ir/declared_types.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
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

/// Inputs of nested graphs too: a loop's are what the file says of them.
void forget_sizes(Model& model, Graph& graph) {
  for (Node& node : graph) {
    for (std::size_t i = 0; i < node.output_count(); ++i) forget_sizes(model, node.output(i));
    for (Graph* nested : node.subgraphs()) {
      for (const auto& input : nested->inputs()) forget_sizes(model, *input);
      forget_sizes(model, *nested);
    }
  }
}

/// One walk over a model, and whether what its file says of sizes can be so.
class Walk {
 public:
  explicit Walk(Model& model)
      : model_(model), symbols_(symbols_of_inputs(*model.graph)), known_{model, elements_, opset_of(model)} {}

  void run() { infer(*model_.graph); }
  bool is_contradicted() const { return is_contradicted_; }

 private:
  static int opset_of(const Model& model) {
    const auto opset = model.opsets.find("");
    return opset == model.opsets.end() ? 0 : static_cast<int>(opset->second);
  }

  void infer(Graph& graph) {
    for (Node& node : graph) {
      if (!node.is_torch()) infer(node);
    }
  }

  void infer(Node& node) {
    for (Graph* nested : node.subgraphs()) infer(*nested);
    const InferredTypes inferred = types_of(node);
    for (std::size_t i = 0; i < node.output_count(); ++i) {
      node.output(i).set_type(joined(node.output(i).type(), inferred.types[i]));
    }
    if (inferred.elements) elements_.set(node.output(), *inferred.elements);
  }

  bool is_call(const Node& node) const {
    return std::ranges::any_of(model_.functions, [&](const Function& function) {
      return function.name == node.op() && function.domain == node.domain();
    });
  }

  // A call's body would be inferred for each call, and bodies that call others twice are many. What no input could make
  // right tells that sizes which the file says are not so, or stands in a branch that no run takes; that is no matter
  // of what reads the file.
  InferredTypes types_of(const Node& node) {
    InferredTypes nothing{std::vector<Type>(node.output_count()), std::nullopt};
    if (is_call(node)) return nothing;
    std::vector<Value*> inputs;
    for (std::size_t i = 0; i < node.input_count(); ++i) inputs.push_back(node.find_input(i));
    try {
      return ir::infer({node.domain(), node.op(), inputs, node.attributes(), node.output_count(), node.source()},
                       known_);
    } catch (const GraphError&) {
      is_contradicted_ = true;
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
      return inferred.is_constant() ? inferred : declared;
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

  Model& model_;
  std::set<std::string> symbols_;
  KnownElements elements_;
  InferenceContext::Known known_;
  std::unordered_map<std::string, Dim> names_;  // that the file has for a size which the inputs tell
  bool is_contradicted_ = false;
};

}  // namespace

void infer_declared(Model& model) {
  Walk first(model);
  first.run();
  if (!first.is_contradicted()) return;
  forget_sizes(model, *model.graph);
  Walk(model).run();
}

}  // namespace exportguard::ir
