#pragma once

#include <exportguard/expansion/expansion.h>

#include "python/bindings.h"

namespace exportguard::python {

/// What a Python function makes of one operator. `function(target, arguments)` gives a `torch.fx.GraphModule` of the
/// operator and a name for each torch symbol in it, or None. Its arguments are literals and `_core.Operand`s, whose
/// sizes are written in the symbols `d0`, `d1`, …; the graph's placeholders are the operands in order. The trace takes
/// the GIL for the call; the function must outlive it.
expansion::Trace operator_trace(const py::object& function);

void bind_operator_trace(py::module_& m);  ///< `Operand` and `Symbol`

}  // namespace exportguard::python
