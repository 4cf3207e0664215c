#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "exportguard/ir/graph.h"
#include "exportguard/lowering/lower.h"

namespace exportguard::python {

/// The `torch.export.ExportedProgram` that a Python expression evaluates to in `__main__`, as a graph of torch
/// operators: as torch.export returned it, its weights shared, inputs and outputs under the names users know. An
/// `Interpreter` must exist; any thread may call.
/// @throws Error with the text of what Python raised, and if there is no interpreter.
ir::Model import_program(std::string_view expression);

/// How a program becomes a model.
struct ConversionOptions {
  lowering::LoweringOptions lowering;
  /// Classes by their full names, or "repeated": each of their modules becomes the call of a local function.
  std::vector<std::string> modules_as_functions;
  /// Whether the file stops where a guard of the program, or an end of its `range_constraints`, does not hold.
  bool check_sizes = true;
};

/// `import_program` and `pipeline::convert` in one, operators without a row taken apart by torch: the model that
/// `exportguard.to_onnx(program)` gives in Python, for `serialization::save`.
/// @throws what those throw.
ir::Model to_onnx(std::string_view expression, const ConversionOptions& options = {});

}  // namespace exportguard::python
