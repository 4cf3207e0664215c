#pragma once

#include "python/bindings.h"

namespace exportguard::python {

/// What the namespaces of modules and classes hold. A model leads to hundreds of modules with ten thousands of names,
/// of which few matter.
void bind_namespaces(py::module_& m);

}  // namespace exportguard::python
