#include "python/operator_trace.h"

#include <pybind11/stl.h>

#include <map>

#include "python/fx_importer.h"
#include "python/literals.h"

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

Operand described(const ir::Type& type) {
  Operand operand;
  operand.dtype = torch_dtype(type.dtype);
  operand.is_scalar = type.is_scalar;
  if (type.value) operand.value = type.value->str();
  for (const ir::Dim& dim : type.shape.value_or(ir::Shape{})) operand.shape.push_back(dim.str());
  return operand;
}

py::object to_python(const Argument& argument, const expansion::Call& call) {
  if (const auto* operand = argument.get_if<Argument::Operand>()) {
    return py::cast(described(call.operands.at(operand->index)));
  }
  if (const auto* list = argument.get_if<Argument::List>()) {
    py::list items;
    for (const Argument& item : *list) items.append(to_python(item, call));
    return items;
  }
  return literal_to_python(argument);
}

}  // namespace

expansion::Trace operator_trace(const py::object& function) {
  return [handle = py::handle(function)](const expansion::Call& call) -> std::unique_ptr<ir::Graph> {
    const py::gil_scoped_acquire gil;
    py::list arguments;
    for (const Argument& argument : call.arguments) arguments.append(to_python(argument, call));
    const py::object result = handle(call.target, arguments);
    if (result.is_none()) return nullptr;
    const auto [module, names] = result.cast<std::pair<py::object, std::map<std::string, std::string>>>();
    return import_graph_module(module, names);
  };
}

void bind_operator_trace(py::module_& m) {
  py::class_<Operand>(m, "Operand", "A tensor or symbolic number that an operator is given.")
      .def_readonly("dtype", &Operand::dtype)
      .def_readonly("shape", &Operand::shape, "Numbers and expressions of d0, d1, …, as text.")
      .def_readonly("is_scalar", &Operand::is_scalar, "Whether it is a SymInt, SymFloat or SymBool.")
      .def_readonly("value", &Operand::value, "What a SymInt is, as text.");
  py::class_<Argument::Symbol>(m, "Symbol", "A device, layout or memory format.")
      .def_readonly("name", &Argument::Symbol::name);
}

}  // namespace exportguard::python
