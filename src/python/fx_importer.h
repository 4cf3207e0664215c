#pragma once

#include <exportguard/ir/graph.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "python/bindings.h"

namespace exportguard::python {

struct FxImportOptions {
  /// Names of the user's inputs and outputs in the program's flat order, constants and None included; nothing: torch's.
  std::optional<std::vector<std::string>> input_names;
  std::optional<std::vector<std::string>> output_names;
  std::map<std::string, std::string> dim_names;  ///< torch's symbol → name
};

/// A `torch.export.ExportedProgram`, as `torch.export.export` returned it, at the torch level. Parameters, buffers and
/// lifted constants are initializers under their full names and share the program's memory. An input that export
/// specialised (None, a number, a text) is no input. The program is left as it is.
/// @throws ImportError for what has no counterpart: tokens, custom objects, fake weights.
ir::Model import_program(const py::object& program, const FxImportOptions& options);

/// A plain `torch.fx.GraphModule` of torch-level operators whose nodes have example values.
std::unique_ptr<ir::Graph> import_graph_module(const py::object& graph_module,
                                               const std::map<std::string, std::string>& dim_names);

}  // namespace exportguard::python
