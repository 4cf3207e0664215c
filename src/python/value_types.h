#pragma once

#include <exportguard/ir/graph.h>

#include "python/bindings.h"

namespace exportguard::python {

/// Sizes as Python has them: numbers, and names or expressions as text; None for an unknown rank.
py::object shape_to_python(const ir::Type& type);

/// The way back; None is a size of its own.
ir::Shape shape_from_python(const py::sequence& sizes, ir::Model& model);

}  // namespace exportguard::python
