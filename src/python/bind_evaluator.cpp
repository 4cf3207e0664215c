#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <pybind11/stl.h>

#include "exportguard/common/errors.h"
#include "exportguard/evaluator/evaluator.h"
#include "python/bindings.h"

namespace exportguard::python {
namespace {

using evaluator::Value;

/// A tensor of strings: its sizes, and its elements in C order.
struct Strings {
  std::vector<std::string> elements;
  std::vector<std::int64_t> shape;
};

Value from_python(const py::handle& object) {
  if (object.is_none()) return {};
  if (py::isinstance<Strings>(object)) {
    const auto& strings = object.cast<const Strings&>();
    return ir::Tensor::strings(strings.elements, strings.shape);
  }
  py::detail::make_caster<at::Tensor> tensor;
  if (tensor.load(object, false)) return ir::Tensor(static_cast<at::Tensor&>(tensor));
  if (!py::isinstance<py::list>(object) && !py::isinstance<py::tuple>(object)) {
    throw InvalidArgument(fmt::format("an input must be a tensor, Strings, a list of these or None, got {}",
                                      py::str(py::type::of(object)).cast<std::string>()));
  }
  std::vector<Value> items;
  for (const py::handle item : object.cast<py::sequence>()) items.push_back(from_python(item));
  return items;
}

py::object to_python(const Value& value) {
  if (value.is_none()) return py::none();
  if (const auto* items = value.find_sequence()) {
    py::list list;
    for (const Value& item : *items) list.append(to_python(item));
    return list;
  }
  const ir::Tensor& tensor = value.tensor();
  if (tensor.dtype() == DType::kString) return py::cast(Strings{tensor.strings(), tensor.shape()});
  return py::cast(tensor.aten());
}

/// Keeps the model alive that its program reads.
class Evaluator {
 public:
  Evaluator(const ir::Model& model, const std::string& device) : program_(model, {device, {}}) {}

  py::list run(const py::list& inputs) const {
    std::vector<Value> values;
    for (const py::handle input : inputs) values.push_back(from_python(input));
    std::vector<Value> outputs;
    {
      const py::gil_scoped_release release;
      outputs = program_.run(values);
    }
    py::list results;
    for (const Value& output : outputs) results.append(to_python(output));
    return results;
  }

 private:
  evaluator::Program program_;
};

}  // namespace

void bind_evaluator(py::module_& m) {
  py::class_<Strings>(m, "Strings", "A tensor of strings: its elements in C order, and its sizes.")
      .def(py::init<std::vector<std::string>, std::vector<std::int64_t>>(), py::arg("elements"), py::arg("shape"))
      .def_readonly("elements", &Strings::elements)
      .def_readonly("shape", &Strings::shape);
  py::class_<Evaluator>(m, "Evaluator", "A model made ready to run with torch's kernels.")
      .def(py::init<const ir::Model&, const std::string&>(), py::arg("model"), py::arg("device") = "cpu",
           py::keep_alive<1, 2>(), py::call_guard<py::gil_scoped_release>())
      .def("run", &Evaluator::run, py::arg("inputs"),
           "One input for each of the graph: a tensor, Strings, a list of these, or None; the outputs alike.");
}

}  // namespace exportguard::python
