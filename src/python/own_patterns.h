#pragma once

#include <exportguard/optimizer/graph_pattern.h>

#include "python/bindings.h"

namespace exportguard::python {

/// A pattern whose condition and replacement are Python functions, of what `exportguard.Pattern` says of itself. It
/// must be destroyed while the GIL is held.
optimizer::Pattern own_pattern(const py::dict& description);

}  // namespace exportguard::python
