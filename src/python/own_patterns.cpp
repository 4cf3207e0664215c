#include "python/own_patterns.h"

#include <exportguard/common/errors.h>
#include <fmt/format.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "python/graph_scope.h"
#include "python/value_types.h"

namespace exportguard::python {
namespace {

using optimizer::Captures;

struct AttributeToPython {
  py::object operator()(const ir::Tensor& tensor) const {
    return tensor.dtype() == DType::kString ? py::cast(tensor.strings()) : py::cast(tensor.aten());
  }
  py::object operator()(const ir::Type& type) const { return py::cast(type.str()); }
  py::object operator()(const std::unique_ptr<ir::Graph>&) const { return py::none(); }
  template <typename T>
  py::object operator()(const T& value) const {
    return py::cast(value);
  }
};

/// What the functions of one match are given; values cannot be used once they have returned.
class Arguments {
 public:
  Arguments(const Captures& captures, ir::Model* model) : construction_(std::make_shared<Construction>()) {
    construction_->model = model;
    for (ir::Value* value : captures.values) values.append(ValueHandle{construction_, value});
    for (const auto& [name, size] : captures.sizes) {
      sizes[py::str(name)] = shape_to_python(ir::Type::tensor(DType::kInt64, ir::Shape{size})).attr("__getitem__")(0);
    }
    for (const auto& [name, attribute] : captures.attributes) {
      attributes[py::str(name)] = attribute ? std::visit(AttributeToPython(), *attribute) : py::none();
    }
  }
  ~Arguments() { construction_->is_over = true; }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  const std::shared_ptr<Construction>& construction() const { return construction_; }

  py::list values;
  py::dict sizes;
  py::dict attributes;

 private:
  std::shared_ptr<Construction> construction_;
};

std::string refusal(const py::object& condition, const Captures& captures) {
  const py::gil_scoped_acquire gil;
  const Arguments arguments(captures, nullptr);
  return condition(arguments.values, arguments.sizes, arguments.attributes).cast<std::string>();
}

std::vector<ir::Value*> replaced(const std::string& name, const py::object& function, ir::Builder& builder,
                                 const Captures& captures) {
  const py::gil_scoped_acquire gil;
  const Arguments arguments(captures, &builder.model());
  const py::object scope = py::cast(scope_over(builder, captures.root, arguments.construction()));
  const py::object returned = function(scope, arguments.values, arguments.sizes, arguments.attributes);

  std::vector<ir::Value*> values;
  for (const py::handle item : returned.cast<py::sequence>()) {
    if (!py::isinstance<ValueHandle>(item)) {
      throw InvalidArgument(fmt::format("pattern '{}': the replacement must return values of the graph, got {}", name,
                                        py::repr(item).cast<std::string>()));
    }
    const auto& handle = item.cast<const ValueHandle&>();
    if (handle.construction != arguments.construction()) {
      throw InvalidArgument(fmt::format("pattern '{}': the replacement returned a value of another graph", name));
    }
    values.push_back(handle.value);
  }
  return values;
}

optimizer::Hole hole_of(const py::dict& description, ir::Model& names) {
  optimizer::Hole hole;
  hole.is_constant = description["constant"].cast<bool>();
  const auto dtype = description["dtype"].cast<std::string>();
  if (!dtype.empty()) hole.type.dtype = exportguard::dtype(dtype);
  const py::object shape = description["shape"];
  const py::object elements = description["elements"];
  if (!shape.is_none()) hole.type.shape = shape_from_python(shape.cast<py::sequence>(), names);
  if (!elements.is_none()) hole.elements = shape_from_python(elements.cast<py::sequence>(), names);
  return hole;
}

}  // namespace

optimizer::Pattern own_pattern(const py::dict& description) {
  optimizer::GraphPattern pattern;
  pattern.name = description["name"].cast<std::string>();

  pattern.matches = description["matches"].cast<std::string>();
  const auto match = std::make_shared<ir::Model>();
  const auto& model = description["match"].cast<const ir::Model&>();
  match->graph = model.graph->clone();
  match->opsets = model.opsets;

  for (const py::handle hole : description["holes"]) pattern.holes.push_back(hole_of(hole.cast<py::dict>(), *match));
  using Names = std::tuple<std::string, std::string, std::string>;
  for (const auto& [name, op, attribute] : description["attributes"].cast<std::vector<Names>>()) {
    pattern.attributes.push_back({name, op, attribute});
  }
  pattern.match = match;

  const py::object condition = description["condition"];
  const py::object replacement = description["replacement"];
  if (!condition.is_none()) {
    pattern.condition = [condition](const Captures& captures) { return refusal(condition, captures); };
  }
  pattern.replacement = [name = pattern.name, replacement](ir::Builder& builder, const Captures& captures) {
    return replaced(name, replacement, builder, captures);
  };
  return optimizer::pattern_of(std::move(pattern));
}

}  // namespace exportguard::python
