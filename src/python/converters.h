#pragma once

#include <exportguard/lowering/table.h>

#include <map>
#include <string>

#include "python/bindings.h"

namespace exportguard::python {

/// A table with other rows in it: `converters` has a Python function for each torch operator,
/// `own.op.default`. A function is called with the graph (`GraphScope`) and the list of arguments, in the order of the
/// operator's schema: values (`GraphValue`), lists of them, literals, None. It returns one value for each output, None
/// for one that nobody reads.
/// What it raises goes through to the caller, with a note that says which node was being converted.
/// Needs the GIL; so does the end of the table. Lowerings take it themselves.
lowering::LoweringTable table_with(lowering::LoweringTable table, const std::map<std::string, py::object>& converters);

}  // namespace exportguard::python
