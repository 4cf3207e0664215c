#pragma once

#include "exportguard/evaluator/value.h"
#include "python/bindings.h"

namespace exportguard::python {

/// A tensor of strings: its sizes, and its elements in C order.
struct Strings {
  std::vector<std::string> elements;
  std::vector<std::int64_t> shape;
};

/// A tensor, Strings, a list of these, or None. @throws InvalidArgument for anything else.
evaluator::Value value_from_python(const py::handle& object);
std::vector<evaluator::Value> values_from_python(const py::list& objects);

py::object value_to_python(const evaluator::Value& value);
py::list values_to_python(const std::vector<evaluator::Value>& values);

}  // namespace exportguard::python
