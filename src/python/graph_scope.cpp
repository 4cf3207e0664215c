#include "python/graph_scope.h"

#include <exportguard/common/errors.h>
#include <exportguard/common/torch_dtypes.h>
#include <exportguard/ir/inference.h>
#include <exportguard/ir/text.h>
#include <fmt/format.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "python/literals.h"
#include "python/value_types.h"

namespace exportguard::python {
namespace {

void require_open(const Construction& construction) {
  if (construction.is_over) {
    throw InvalidArgument("the converter has returned: what it was given can no longer be used; build within the call");
  }
}

ir::Value& value_of(const ValueHandle& handle) {
  require_open(*handle.construction);
  return *handle.value;
}

// ------------------------------------------------------------------------------------------------ scopes

GraphScope scope_of(const std::shared_ptr<Construction>& construction, ir::Graph& graph) {
  GraphScope scope{construction, &graph, nullptr, nullptr};
  scope.own = std::make_unique<ir::Builder>(*construction->model, ir::Builder::Place{&graph, nullptr, nullptr});
  scope.builder = scope.own.get();
  return scope;
}

GraphScope new_model(std::map<std::string, std::int64_t> opsets) {
  auto construction = std::make_shared<Construction>();
  construction->own = std::make_unique<ir::Model>();
  construction->model = construction->own.get();
  construction->model->opsets = std::move(opsets);
  return scope_of(construction, *construction->model->graph);
}

GraphScope new_body(const GraphScope& scope, const std::string& name) {
  require_open(*scope.construction);
  scope.construction->bodies.push_back(std::make_unique<ir::Graph>(name));
  return scope_of(scope.construction, *scope.construction->bodies.back());
}

GraphScope new_function(const GraphScope& scope, const std::string& domain, const std::string& name) {
  require_open(*scope.construction);
  ir::Model& model = *scope.construction->model;
  const bool is_taken =
      std::ranges::any_of(model.functions, [&](const ir::Function& f) { return f.domain == domain && f.name == name; });
  if (is_taken) throw InvalidArgument(fmt::format("there is a function {}::{} already", domain, name));
  ir::Function function{domain, name, {}, std::make_unique<ir::Graph>(name), model.opsets};
  function.opsets.emplace(domain, 1);
  model.opsets.emplace(domain, 1);
  model.functions.push_back(std::move(function));
  return scope_of(scope.construction, *model.functions.back().body);
}

// ------------------------------------------------------------------------------------------------ content

ValueHandle add_input(GraphScope& scope, const std::string& name, const std::string& dtype, const py::object& shape,
                      const std::string& kind) {
  require_open(*scope.construction);
  ir::Type type;
  if (!dtype.empty()) type.dtype = exportguard::dtype(dtype);
  if (!shape.is_none()) type.shape = shape_from_python(shape.cast<py::sequence>(), *scope.construction->model);
  if (kind == "sequence") type.kind = ir::Type::Kind::kSequence;
  if (kind == "optional") type.kind = ir::Type::Kind::kOptional;
  for (const auto& input : scope.graph->inputs()) {
    if (input->name() == name) throw InvalidArgument(fmt::format("there is an input '{}' already", name));
  }
  ir::Value& input = scope.graph->add_input(name, type);
  scope.builder->note_sizes(input, type);
  return scope.handle(&input);
}

ValueHandle add_constant(GraphScope& scope, const at::Tensor& tensor, const std::string& name) {
  require_open(*scope.construction);
  if (name.empty()) return scope.handle(scope.builder->constant(ir::Tensor(tensor)));
  return scope.handle(&scope.graph->add_initializer(name, ir::Tensor(tensor)));
}

ValueHandle add_number(GraphScope& scope, const py::object& number, const std::string& dtype) {
  require_open(*scope.construction);
  const DType to = exportguard::dtype(dtype);
  if (PyFloat_Check(number.ptr())) return scope.handle(scope.builder->constant(number.cast<double>(), to));
  return scope.handle(scope.builder->constant(number.cast<std::int64_t>(), to));
}

ValueHandle add_integers(GraphScope& scope, const std::vector<std::int64_t>& numbers) {
  require_open(*scope.construction);
  return scope.handle(scope.builder->ints(numbers));
}

/// int64[n] with these sizes, computed from the sizes of the inputs.
ValueHandle add_sizes(GraphScope& scope, const py::sequence& sizes) {
  require_open(*scope.construction);
  std::vector<ir::Size> entries;
  for (const ir::Dim& size : shape_from_python(sizes, *scope.construction->model)) {
    if (const auto number = size.constant()) {
      entries.emplace_back(*number);
    } else {
      entries.emplace_back(scope.builder->dim_value(size));
    }
  }
  return scope.handle(scope.builder->concat_sizes(entries));
}

void add_output(GraphScope& scope, const ValueHandle& value, const std::string& name) {
  ir::Value& output = value_of(value);
  scope.graph->add_output(&output, name);
}

// ------------------------------------------------------------------------------------------------ nodes

/// Takes a body out of those that wait; it becomes an attribute.
std::unique_ptr<ir::Graph> take_body(Construction& construction, const GraphScope& body) {
  auto& bodies = construction.bodies;
  const auto found = std::ranges::find_if(bodies, [&](const auto& graph) { return graph.get() == body.graph; });
  if (found == bodies.end()) throw InvalidArgument("the body is part of a node already, or of another model");
  std::unique_ptr<ir::Graph> graph = std::move(*found);
  bodies.erase(found);
  return graph;
}

ir::Attribute attribute_of(Construction& construction, const std::string& kind, const py::handle value) {
  if (kind == "int") return value.cast<std::int64_t>();
  if (kind == "float") return value.cast<double>();
  if (kind == "string") return value.cast<std::string>();
  if (kind == "ints") return value.cast<std::vector<std::int64_t>>();
  if (kind == "floats") return value.cast<std::vector<double>>();
  if (kind == "strings") return value.cast<std::vector<std::string>>();
  if (kind == "tensor") return ir::Tensor(value.cast<at::Tensor>());
  if (kind == "graph") return take_body(construction, value.cast<const GraphScope&>());
  throw InvalidArgument(fmt::format("attributes of kind '{}' cannot be given", kind));
}

using AttributeSpec = std::tuple<std::string, std::string, py::object>;  // name, kind, value

std::vector<ValueHandle> add_node(GraphScope& scope, const std::string& domain, const std::string& op,
                                  const std::vector<std::optional<ValueHandle>>& inputs, std::size_t outputs,
                                  const std::vector<AttributeSpec>& attributes) {
  require_open(*scope.construction);
  std::vector<ir::Value*> operands;
  for (const auto& input : inputs) {
    if (input && input->construction != scope.construction) {
      throw InvalidArgument(fmt::format("{}: an operand is of another model", op));
    }
    operands.push_back(input ? input->value : nullptr);
  }

  std::vector<ir::NamedAttribute> given;
  for (const auto& [name, kind, value] : attributes) {
    given.emplace_back(name, attribute_of(*scope.construction, kind, value));
  }

  std::vector<ValueHandle> results;
  for (ir::Value* made : scope.builder->op_many_in(domain, op, operands, outputs, std::move(given))) {
    results.push_back(scope.handle(made));
  }
  return results;
}

// ------------------------------------------------------------------------------------------------ other models

std::string text_of_function(const ir::Function& function) {
  ir::Model alone;
  alone.functions.push_back({function.domain, function.name, function.attributes, function.body->clone(), {}});
  return ir::print(alone);
}

void take_function(ir::Model& model, const ir::Function& function) {
  for (const ir::Function& known : model.functions) {
    if (known.domain != function.domain || known.name != function.name) continue;
    if (text_of_function(known) == text_of_function(function)) return;
    throw InvalidArgument(fmt::format("there is another function {}::{} already", function.domain, function.name));
  }
  model.functions.push_back(
      {function.domain, function.name, function.attributes, function.body->clone(), function.opsets});
}

/// Types of the nodes that were put in front of `before`, behind `previous`.
void infer_between(const GraphScope& scope, ir::Node* previous) {
  ir::Node* first = previous ? previous->next() : scope.graph->first();
  for (ir::Node* node = first; node != scope.before; node = node->next()) {
    node->set_source(scope.builder->source());
    std::vector<ir::Type> declared;
    for (std::size_t i = 0; i < node->output_count(); ++i) declared.push_back(node->output(i).type());
    scope.builder->infer_again(*node);
    for (std::size_t i = 0; i < node->output_count(); ++i) {
      if (node->output(i).dtype() == DType::kUndefined) node->output(i).set_type(std::move(declared[i]));
    }
  }
}

/// The nodes of another model's graph, its inputs replaced by `arguments`; its functions come along.
std::vector<ValueHandle> inlined(GraphScope& scope, const ir::Model& other, const std::vector<ValueHandle>& arguments) {
  require_open(*scope.construction);
  const ir::Graph& graph = *other.graph;
  if (arguments.size() != graph.input_count()) {
    throw InvalidArgument(fmt::format("the model takes {} inputs, got {}", graph.input_count(), arguments.size()));
  }

  ir::Model& model = *scope.construction->model;
  for (const auto& [domain, version] : other.opsets) {
    const std::int64_t known = model.opsets.try_emplace(domain, version).first->second;
    if (known != version) {
      throw InvalidArgument(fmt::format("the model has opset {} of domain '{}', the graph {}", version, domain, known));
    }
  }
  for (const ir::Function& function : other.functions) take_function(model, function);

  std::vector<ir::Value*> values;
  for (const ValueHandle& argument : arguments) values.push_back(&value_of(argument));
  ir::Node* previous = scope.before ? scope.before->previous() : scope.graph->last();
  const std::vector<ir::Value*> made = scope.graph->splice(graph, values, scope.before);
  infer_between(scope, previous);

  std::vector<ValueHandle> results;
  for (ir::Value* value : made) results.push_back(scope.handle(value));
  return results;
}

// ------------------------------------------------------------------------------------------------ results

/// A copy, so that the construction can go on; weights are shared.
ir::Model copied(const GraphScope& scope) {
  require_open(*scope.construction);
  const ir::Model& model = *scope.construction->model;
  if (!scope.construction->bodies.empty()) {
    throw InvalidArgument(fmt::format("the body '{}' is part of no node; pass it as an attribute",
                                      scope.construction->bodies.front()->name()));
  }
  ir::Model copy;
  copy.graph = model.graph->clone();
  for (const ir::Function& f : model.functions) {
    copy.functions.push_back({f.domain, f.name, f.attributes, f.body->clone(), f.opsets});
  }
  copy.opsets = model.opsets;
  copy.metadata = model.metadata;
  copy.producer_version = model.producer_version;
  return copy;
}

py::object known_elements(const GraphScope& scope, const ValueHandle& handle) {
  const ir::Elements* elements = scope.builder->find_elements(&value_of(handle));
  if (elements == nullptr) return py::none();
  return shape_to_python(ir::Type::tensor(DType::kInt64, *elements));
}

std::optional<std::size_t> output_count(const GraphScope& scope, const std::string& domain, const std::string& name) {
  for (const ir::Function& function : scope.construction->model->functions) {
    if (function.domain == domain && function.name == name) return function.body->output_count();
  }
  return std::nullopt;
}

py::object constant_to_python(const ValueHandle& handle) {
  const ir::Tensor* tensor = ir::constant_of(value_of(handle));
  if (tensor == nullptr || tensor->dtype() == DType::kString) return py::none();
  return py::cast(tensor->aten());
}

std::string kind_name(ir::Type::Kind kind) {
  if (kind == ir::Type::Kind::kTensor) return "tensor";
  if (kind == ir::Type::Kind::kOptionalSequence) return "optional sequence";
  return kind == ir::Type::Kind::kSequence ? "sequence" : "optional";
}

}  // namespace

GraphScope scope_over(ir::Builder& builder, ir::Node* before, const std::shared_ptr<Construction>& construction) {
  return {construction, &builder.graph(), nullptr, &builder, before};
}

void bind_graph_scope(py::module_& m) {
  m.def(
      "torch_dtype", [](const std::string& dtype) { return torch_dtype(exportguard::dtype(dtype)); }, py::arg("name"),
      "torch's dtype of a short name, `f32`.");
  m.def(
      "dtype_code", [](const std::string& dtype) { return static_cast<int>(exportguard::dtype(dtype)); },
      py::arg("name"), "ONNX's number of a short name (TensorProto.DataType).");
  m.def(
      "dtype_name", [](const at::ScalarType& dtype) { return std::string(name(from_scalar_type(dtype))); },
      py::arg("dtype"), "The short name of torch's dtype.");

  py::class_<ValueHandle>(m, "GraphValue", "A value of a graph under construction.")
      .def_property(
          "name", [](const ValueHandle& self) { return value_of(self).name(); },
          [](const ValueHandle& self, std::string name) { value_of(self).set_name(std::move(name)); })
      .def_property_readonly(
          "dtype", [](const ValueHandle& self) { return std::string(name(value_of(self).dtype())); },
          "Short name, `f32`; `undefined` if it is not known.")
      .def_property_readonly(
          "shape", [](const ValueHandle& self) { return shape_to_python(value_of(self).type()); },
          "Numbers, and names or expressions as text; None for an unknown rank.")
      .def_property_readonly("constant", &constant_to_python, "The tensor, if the value is a constant; else None.")
      .def_property_readonly("kind", [](const ValueHandle& self) { return kind_name(value_of(self).type().kind); })
      .def_property_readonly("type", [](const ValueHandle& self) { return value_of(self).type().str(); })
      .def("__eq__", [](const ValueHandle& self, const ValueHandle& other) { return self.value == other.value; })
      .def("__hash__", [](const ValueHandle& self) { return std::hash<ir::Value*>()(self.value); })
      .def("__repr__", [](const ValueHandle& self) {
        const std::string& own = value_of(self).name();
        return fmt::format("%{}: {}", own.empty() ? "?" : own, value_of(self).type().str());
      });

  py::class_<GraphScope>(m, "GraphScope", "A graph under construction, to which nodes are appended.")
      .def(py::init(&new_model), py::arg("opsets"))
      .def_property_readonly("opset", [](const GraphScope& self) { return self.builder->opset(); })
      .def("input", &add_input, py::arg("name"), py::arg("dtype"), py::arg("shape"), py::arg("kind") = "tensor")
      .def("constant", &add_constant, py::arg("tensor"), py::arg("name") = "")
      .def("number", &add_number, py::arg("number"), py::arg("dtype"))
      .def("integers", &add_integers, py::arg("numbers"))
      .def("sizes", &add_sizes, py::arg("sizes"))
      .def("node", &add_node, py::arg("domain"), py::arg("op"), py::arg("inputs"), py::arg("outputs"),
           py::arg("attributes"))
      .def("output", &add_output, py::arg("value"), py::arg("name") = "")
      .def_property_readonly("output_count", [](const GraphScope& self) { return self.graph->output_count(); })
      .def("elements", &known_elements, py::arg("value"))
      .def("body", &new_body, py::arg("name"))
      .def("function", &new_function, py::arg("domain"), py::arg("name"))
      .def("inline", &inlined, py::arg("model"), py::arg("arguments"))
      .def("function_outputs", &output_count, py::arg("domain"), py::arg("name"))
      .def("model", &copied);
}

}  // namespace exportguard::python
