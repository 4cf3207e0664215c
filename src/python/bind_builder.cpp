#include <exportguard/ir/inference.h>
#include <exportguard/serialization/schemas.h>
#include <pybind11/stl.h>

#include "python/bindings.h"
#include "python/graph_scope.h"

namespace exportguard::python {
namespace {

using serialization::OperatorSchema;
using serialization::SchemaAttribute;
using serialization::SchemaParameter;

std::string count_name(const SchemaParameter& parameter) {
  if (parameter.count == SchemaParameter::Count::kMany) return "many";
  return parameter.count == SchemaParameter::Count::kOptional ? "optional" : "one";
}

void bind_schemas(py::module_& m) {
  py::class_<SchemaParameter>(m, "SchemaParameter", "An operand or result of an ONNX operator.")
      .def_readonly("name", &SchemaParameter::name)
      .def_readonly("type", &SchemaParameter::type, "The name of the type variable, or a type.")
      .def_readonly("types", &SchemaParameter::types, "As ONNX writes them: tensor(float).")
      .def_property_readonly("count", &count_name, "one, optional or many.");

  py::class_<SchemaAttribute>(m, "SchemaAttribute", "An attribute of an ONNX operator.")
      .def_readonly("name", &SchemaAttribute::name)
      .def_readonly("kind", &SchemaAttribute::kind, "int, float, string, tensor, graph, type_proto; ints, … for lists.")
      .def_readonly("is_required", &SchemaAttribute::is_required);

  py::class_<OperatorSchema>(m, "OperatorSchema", "The definition of an ONNX operator in one opset.")
      .def_readonly("name", &OperatorSchema::name)
      .def_readonly("since", &OperatorSchema::since)
      .def_readonly("inputs", &OperatorSchema::inputs)
      .def_readonly("outputs", &OperatorSchema::outputs)
      .def_readonly("attributes", &OperatorSchema::attributes)
      .def_readonly("least_inputs", &OperatorSchema::least_inputs)
      .def_readonly("least_outputs", &OperatorSchema::least_outputs);

  m.def("find_schema", &serialization::find_schema, py::arg("domain"), py::arg("op"), py::arg("version"),
        "The definition of an operator in that version of its domain; None if there is none.");
  m.def("operator_names", &serialization::operator_names, py::arg("domain"), py::arg("version"),
        "Operators that have a definition in that version of the domain, sorted.");
}

std::vector<std::string> inferred_operators() { return ir::InferenceTable::builtin().operators(); }

}  // namespace

void bind_builder(py::module_& m) {
  bind_schemas(m);
  bind_graph_scope(m);
  m.def("inferred_operators", &inferred_operators, "Operators whose types and shapes are inferred.");
  m.def("infer_types", &ir::infer_model, py::arg("model"), "Infers the types of every ONNX node of the model again.");
}

}  // namespace exportguard::python
