#pragma once

#include "python/bindings.h"

namespace exportguard::python {

void bind_size_conditions(py::module_& m);  ///< `SizeCondition` and `SizeSearch`

}  // namespace exportguard::python
