#pragma once

#include "python/bindings.h"

namespace exportguard::python {

void bind_divergence(py::module_& m);  ///< `NodeView`, `Finding`, `DivergenceView`, `ReportView`, `find_divergence`

}  // namespace exportguard::python
