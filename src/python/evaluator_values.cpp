#include "python/evaluator_values.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "exportguard/common/errors.h"

namespace exportguard::python {

using evaluator::Value;

Value value_from_python(const py::handle& object) {
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
  for (const py::handle item : object.cast<py::sequence>()) items.push_back(value_from_python(item));
  return items;
}

py::object value_to_python(const Value& value) {
  if (value.is_none()) return py::none();
  if (const auto* items = value.find_sequence()) {
    py::list list;
    for (const Value& item : *items) list.append(value_to_python(item));
    return list;
  }
  const ir::Tensor& tensor = value.tensor();
  if (tensor.dtype() == DType::kString) return py::cast(Strings{tensor.strings(), tensor.shape()});
  return py::cast(tensor.aten());
}

std::vector<Value> values_from_python(const py::list& objects) {
  std::vector<Value> values;
  for (const py::handle object : objects) values.push_back(value_from_python(object));
  return values;
}

py::list values_to_python(const std::vector<Value>& values) {
  py::list list;
  for (const Value& value : values) list.append(value_to_python(value));
  return list;
}

}  // namespace exportguard::python
