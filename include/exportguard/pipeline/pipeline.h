#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "exportguard/expansion/expansion.h"
#include "exportguard/importer/functionalize.h"
#include "exportguard/ir/graph.h"
#include "exportguard/lowering/lower.h"

namespace exportguard::pipeline {

struct PipelineOptions {
  lowering::LoweringOptions lowering;
  /// What torch makes of one operator, for those without a row; without it they are reported.
  expansion::Trace trace;
  /// Only that many outputs stay: behind the user's come those of inputs and buffers that were written. Nothing: all.
  std::optional<std::size_t> outputs;
  /// The last step, on the ONNX graph, but for `lowering::widen_bfloat16`. Without it both are the caller's.
  std::function<void(ir::Model&)> optimize;
};

struct PipelineReport {
  importer::FunctionalizeReport functionalized;
  std::size_t expanded = 0;  ///< nodes whose operator had no row
};

/// Refuses nodes whose dtypes torch's kernels refuse and its shape functions let pass, so that a model that eager
/// cannot run is no file that runs. All are told together.
/// @throws LoweringError
void require_dtypes_of_eager(const ir::Graph& graph);

/// The step that replaces operators without a row by what `options.trace` makes of each; returns how many.
std::size_t expand(ir::Model& model, const PipelineOptions& options);

/// The way from a program as it was imported to ONNX, in place: functionalize, refuse the dtypes that eager
/// refuses, expand, lower, optimize. Everybody who
/// converts calls this, so that C++ and Python convert the same.
/// @throws ImportError, LoweringError, InvalidArgument and what the call-backs throw; the model is then partly
/// converted and can be printed.
PipelineReport convert(ir::Model& model, const PipelineOptions& options = {});

}  // namespace exportguard::pipeline
