#include "python/literals.h"

#include <exportguard/common/torch_dtypes.h>
#include <pybind11/complex.h>
#include <torch/csrc/DynamicTypes.h>

namespace exportguard::python {

using ir::Argument;

py::object torch_dtype(DType dtype) {
  auto* object = reinterpret_cast<PyObject*>(torch::getTHPDtype(to_scalar_type(dtype)));
  return py::reinterpret_borrow<py::object>(object);
}

py::object literal_to_python(const Argument& argument) {
  if (const auto* flag = argument.get_if<bool>()) return py::bool_(*flag);
  if (const auto* number = argument.get_if<std::int64_t>()) return py::int_(*number);
  if (const auto* number = argument.get_if<double>()) return py::float_(*number);
  if (const auto* number = argument.get_if<std::complex<double>>()) return py::cast(*number);
  if (const auto* text = argument.get_if<std::string>()) return py::str(*text);
  if (const auto* dtype = argument.get_if<DType>()) return torch_dtype(*dtype);
  if (const auto* symbol = argument.get_if<Argument::Symbol>()) return py::cast(*symbol);
  return py::none();
}

}  // namespace exportguard::python
