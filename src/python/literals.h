#pragma once

#include <exportguard/ir/graph.h>

#include "python/bindings.h"

namespace exportguard::python {

/// A literal of a torch-level call as Python has it: numbers, texts, torch's dtypes, None, and `_core.Symbol` for
/// devices, layouts and memory formats. Operands and lists are for the caller.
py::object literal_to_python(const ir::Argument& argument);

py::object torch_dtype(DType dtype);

}  // namespace exportguard::python
