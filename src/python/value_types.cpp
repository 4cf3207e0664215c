#include "python/value_types.h"

#include <exportguard/ir/inference.h>

namespace exportguard::python {

py::object shape_to_python(const ir::Type& type) {
  if (!type.shape) return py::none();
  py::list sizes;
  for (const ir::Dim& dim : *type.shape) {
    if (const auto value = dim.constant()) {
      sizes.append(*value);
    } else {
      sizes.append(dim.str());
    }
  }
  return sizes;
}

ir::Shape shape_from_python(const py::sequence& sizes, ir::Model& model) {
  ir::Shape shape;
  for (const py::handle size : sizes) {
    if (size.is_none()) {
      shape.push_back(ir::fresh_symbol(model));
    } else if (PyUnicode_Check(size.ptr())) {
      shape.push_back(SymExpr::parse(size.cast<std::string>()));
    } else {
      shape.emplace_back(size.cast<std::int64_t>());
    }
  }
  return shape;
}

}  // namespace exportguard::python
