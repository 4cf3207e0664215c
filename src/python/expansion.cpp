#include "python/expansion.h"

#include <exportguard/common/errors.h>
#include <exportguard/common/torch_dtypes.h>
#include <exportguard/importer/functionalize.h>
#include <exportguard/lowering/lower.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pybind11/complex.h>
#include <pybind11/stl.h>
#include <torch/csrc/DynamicTypes.h>

#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "python/fx_importer.h"

namespace exportguard::python {
namespace {

using ir::Argument;

/// A value that is passed to an operator, as Python sees it.
struct [[gnu::visibility("hidden")]] Operand {
  py::object dtype;
  std::vector<std::string> shape;  ///< numbers and expressions
  bool is_scalar = false;
  std::optional<std::string> value;  ///< of a SymInt
};

/// One call in canonical form: symbols are numbered in the order in which they occur.
struct CanonicalCall {
  std::map<std::string, SymExpr> canonical;  ///< the graph's symbol → `d0`
  std::map<std::string, SymExpr> original;   ///< back
  std::string key;

  SymExpr rewrite(const SymExpr& expression) {
    for (const std::string& symbol : expression.symbols()) {
      if (canonical.contains(symbol)) continue;
      const std::string name = fmt::format("d{}", canonical.size());
      canonical.emplace(symbol, SymExpr::symbol(name));
      original.emplace(name, SymExpr::symbol(symbol));
    }
    return expression.substitute(canonical);
  }
};

py::object torch_dtype(DType dtype) {
  auto* object = reinterpret_cast<PyObject*>(torch::getTHPDtype(to_scalar_type(dtype)));
  return py::reinterpret_borrow<py::object>(object);
}

Operand describe(const ir::Type& type, CanonicalCall& call) {
  Operand operand;
  operand.dtype = torch_dtype(type.dtype);
  operand.is_scalar = type.is_scalar;
  if (type.value) operand.value = call.rewrite(*type.value).str();
  for (const ir::Dim& dim : type.shape.value_or(ir::Shape{})) operand.shape.push_back(call.rewrite(dim).str());
  call.key += fmt::format("{}[{}]{}{};", name(type.dtype), fmt::join(operand.shape, ","), type.is_scalar ? "s" : "",
                          operand.value.value_or(""));
  return operand;
}

py::object to_python(const ir::Node& node, const Argument& argument, CanonicalCall& call) {
  if (const auto* operand = argument.get_if<Argument::Operand>()) {
    return py::cast(describe(node.input(operand->index).type(), call));
  }
  if (const auto* list = argument.get_if<Argument::List>()) {
    py::list items;
    call.key += '(';
    for (const Argument& item : *list) items.append(to_python(node, item, call));
    call.key += ')';
    return items;
  }
  py::object literal = py::none();
  if (const auto* flag = argument.get_if<bool>()) literal = py::bool_(*flag);
  if (const auto* number = argument.get_if<std::int64_t>()) literal = py::int_(*number);
  if (const auto* number = argument.get_if<double>()) literal = py::float_(*number);
  if (const auto* number = argument.get_if<std::complex<double>>()) literal = py::cast(*number);
  if (const auto* text = argument.get_if<std::string>()) literal = py::str(*text);
  if (const auto* dtype = argument.get_if<DType>()) literal = torch_dtype(*dtype);
  if (const auto* symbol = argument.get_if<Argument::Symbol>()) literal = py::cast(*symbol);
  const auto* symbol = argument.get_if<Argument::Symbol>();
  call.key += (symbol ? symbol->name : py::repr(literal).cast<std::string>()) + ";";
  return literal;
}

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
  Expander(const py::function& trace) : trace_(trace) {}

  void expand(ir::Graph& graph) {
    for (ir::Node& node : graph) {
      for (ir::Graph* body : node.subgraphs()) expand(*body);
      if (!can_be_traced(node) || is_known_size(node) || lowering::can_lower(node, table_)) continue;
      CanonicalCall call;
      if (const ir::Graph* expansion = find_expansion(node, call)) replace(node, *expansion, call);
    }
  }

  std::size_t replaced() const { return replaced_; }

 private:
  const ir::Graph* find_expansion(const ir::Node& node, CanonicalCall& call);
  std::unique_ptr<ir::Graph> traced(const ir::Node& node, const py::list& arguments);
  void replace(ir::Node& node, const ir::Graph& expansion, CanonicalCall& call);
  void restore(ir::Node* first, const ir::Node* end, CanonicalCall& call);
  void restore(ir::Type& type, CanonicalCall& call);

  const py::function& trace_;
  const lowering::LoweringTable& table_ = lowering::LoweringTable::builtin();
  std::unordered_map<std::string, std::unique_ptr<ir::Graph>> expansions_;  // null: torch has none
  std::set<std::string> active_;  // operators whose expansion is being expanded
  std::size_t replaced_ = 0;
  std::size_t fresh_symbols_ = 0;
};

const ir::Graph* Expander::find_expansion(const ir::Node& node, CanonicalCall& call) {
  call.key = node.qualified_name() + ":";
  py::list arguments;
  for (const Argument& argument : node.arguments()) arguments.append(to_python(node, argument, call));
  if (const auto found = expansions_.find(call.key); found != expansions_.end()) return found->second.get();
  if (!active_.insert(node.qualified_name()).second) return nullptr;  // it is part of its own expansion
  std::unique_ptr<ir::Graph> graph = traced(node, arguments);
  if (graph != nullptr) {
    importer::functionalize(*graph);
    expand(*graph);
  }
  active_.erase(node.qualified_name());
  return (expansions_[call.key] = std::move(graph)).get();
}

std::unique_ptr<ir::Graph> Expander::traced(const ir::Node& node, const py::list& arguments) {
  const py::object result = trace_(node.qualified_name(), arguments);
  if (result.is_none()) return nullptr;
  const auto [module, names] = result.cast<std::pair<py::object, std::map<std::string, std::string>>>();
  std::unique_ptr<ir::Graph> graph = import_graph_module(module, names);
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
      if (!call.original.contains(symbol)) {
        call.original.emplace(symbol, SymExpr::symbol(fmt::format("expanded_{}", fresh_symbols_++)));
      }
    }
    return expression.substitute(call.original);
  };
  if (type.value) type.value = restored(*type.value);
  if (!type.shape) return;
  for (ir::Dim& dim : *type.shape) dim = restored(dim);
}

}  // namespace

std::size_t expand(ir::Model& model, const py::function& trace) {
  Expander expander(trace);
  expander.expand(*model.graph);
  model.graph->sweep();
  return expander.replaced();
}

void bind_expansion(py::module_& m) {
  py::class_<Operand>(m, "Operand", "A tensor or symbolic number that an operator is given.")
      .def_readonly("dtype", &Operand::dtype)
      .def_readonly("shape", &Operand::shape, "Numbers and expressions of d0, d1, …, as text.")
      .def_readonly("is_scalar", &Operand::is_scalar, "Whether it is a SymInt, SymFloat or SymBool.")
      .def_readonly("value", &Operand::value, "What a SymInt is, as text.");
  py::class_<Argument::Symbol>(m, "Symbol", "A device, layout or memory format.")
      .def_readonly("name", &Argument::Symbol::name);
}

}  // namespace exportguard::python
