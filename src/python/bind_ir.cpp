#include <pybind11/stl.h>

#include "exportguard/common/symbolic.h"
#include "exportguard/common/version.h"
#include "exportguard/ir/congruence.h"
#include "exportguard/ir/graph.h"
#include "exportguard/ir/text.h"
#include "exportguard/ir/verify.h"
#include "exportguard/ir/wide_ends.h"
#include "python/bindings.h"
#include "python/value_types.h"

namespace exportguard::python {
namespace {

// (name, type, dtype, shape); the shape of an unknown rank is None.
py::tuple describe(const std::string& name, const ir::Type& type) {
  return py::make_tuple(name, type.str(), exportguard::name(type.dtype), shape_to_python(type));
}

py::list inputs(const ir::Model& model) {
  py::list result;
  for (const auto& input : model.graph->inputs()) result.append(describe(input->name(), input->type()));
  return result;
}

py::list outputs(const ir::Model& model) {
  py::list result;
  const ir::Graph& graph = *model.graph;
  for (std::size_t i = 0; i < graph.output_count(); ++i) {
    const ir::Value* value = graph.find_output(i);
    if (value == nullptr) continue;
    const std::string& own = graph.output_name(i);
    result.append(describe(own.empty() ? value->name() : own, value->type()));
  }
  return result;
}

void count_operators(const ir::Graph& graph, std::map<std::string, std::size_t>& counts) {
  for (const ir::Node& node : graph) {
    ++counts[node.qualified_name()];
    for (const ir::Graph* body : node.subgraphs()) count_operators(*body, counts);
  }
}

std::map<std::string, std::size_t> operators(const ir::Model& model) {
  std::map<std::string, std::size_t> counts;
  count_operators(*model.graph, counts);
  return counts;
}

// Attributes of a file may hold bytes that are no text.
py::str text(const ir::Model& model, bool sources) {
  ir::PrintOptions options;
  options.sources = sources;
  const std::string printed = ir::print(model, options);
  PyObject* decoded = PyUnicode_DecodeUTF8(printed.data(), static_cast<Py_ssize_t>(printed.size()), "replace");
  if (decoded == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(decoded);
}

std::unique_ptr<ir::Model> copied(const ir::Model& model) {
  auto copy = std::make_unique<ir::Model>();
  copy->graph = model.graph->clone();
  for (const ir::Function& function : model.functions) {
    copy->functions.push_back(
        {function.domain, function.name, function.attributes, function.body->clone(), function.opsets});
  }
  copy->opsets = model.opsets;
  copy->metadata = model.metadata;
  copy->producer = model.producer;
  copy->producer_version = model.producer_version;
  copy->domain = model.domain;
  copy->version = model.version;
  copy->documentation = model.documentation;
  copy->graph_documentation = model.graph_documentation;
  copy->next_symbol = model.next_symbol;
  return copy;
}

}  // namespace

void bind_ir(py::module_& m) {
  m.def("version", &version, "The version of exportguard.");
  m.def("torch_version_built_against", &torch_version_built_against,
        "The torch that this module was compiled against.");

  m.def(
      "first_difference",
      [](const ir::Model& a, const ir::Model& b) { return ir::first_difference(*a.graph, *b.graph); }, py::arg("a"),
      py::arg("b"),
      "Why two models are not known to compute the same; empty if every output is computed by the same expression.");
  m.def("widen_ends", &ir::widen_ends, py::arg("model"), py::arg("names"),
        "Makes inputs and outputs of half precision float32, in place; what lies between computes as before.");
  m.def(
      "symbols", [](std::string_view size) { return SymExpr::parse(size).symbols(); }, py::arg("size"),
      "The names in the expression of a size.");
  m.def(
      "evaluate_size",
      [](std::string_view size, const std::map<std::string, std::int64_t>& values) {
        return SymExpr::parse(size).evaluate(values);
      },
      py::arg("size"), py::arg("values"), "What the expression comes to; None if that cannot be told.");

  py::class_<ir::Model>(m, "Model",
                        "A main graph with its local functions, at the torch level, at that of ONNX, or between.")
      .def_static("parse", &ir::parse_model, py::arg("text"), "Reads what text() prints.")
      .def("text", &text, py::arg("sources") = false, "The graph as text, with the source line of each node if asked.")
      .def_property_readonly("inputs", &inputs,
                             "(name, type, dtype, shape) of each input; shape is None for an unknown rank.")
      .def_property_readonly("outputs", &outputs, "The same of each output.")
      .def_property_readonly(
          "node_count", [](const ir::Model& self) { return self.graph->node_count(); }, "Without nested graphs.")
      .def_property_readonly("operators", &operators, "How often each operator stands in it, nested graphs included.")
      .def_readwrite("opsets", &ir::Model::opsets, "Version of each domain; '' is ONNX's own.")
      .def_readwrite("metadata", &ir::Model::metadata, "What a file says of itself beside the graph.")
      .def(
          "verify", [](const ir::Model& self) { ir::verify(self); },
          "Raises GraphError unless the graph is well formed.")
      .def("copy", &copied, "Another graph with the same weights.")
      .def("__repr__", [](const ir::Model& self) { return text(self, false); });
}

}  // namespace exportguard::python
