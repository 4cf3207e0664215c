#pragma once

#include <exportguard/ir/graph.h>

#include <cstddef>

#include "python/bindings.h"

namespace exportguard::python {

/// Replaces every torch-level node whose operator has no lowering by what `trace` makes of that one operator, again and
/// again until each has a lowering or cannot be replaced; those stay, for the lowering to report.
///
/// `trace(target, arguments)` gives a `torch.fx.GraphModule` of the operator and a name for each torch symbol in it, or
/// None. Its arguments are literals and `_core.Operand`s, whose sizes are written in the symbols `d0`, `d1`, …; the
/// graph's placeholders are the operands in order. Equal calls are traced once.
/// @returns how many nodes were replaced.
std::size_t expand(ir::Model& model, const py::function& trace);

/// `_core.Operand` and `_core.Symbol`, which `trace` is given.
void bind_expansion(py::module_& m);

}  // namespace exportguard::python
