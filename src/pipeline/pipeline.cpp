#include "exportguard/pipeline/pipeline.h"

#include "exportguard/lowering/exact_factors.h"
#include "exportguard/lowering/widening.h"

namespace exportguard::pipeline {
namespace {

void keep_outputs(ir::Graph& graph, std::size_t count) {
  while (graph.output_count() > count) graph.erase_output(graph.output_count() - 1);
}

}  // namespace

std::size_t expand(ir::Model& model, const PipelineOptions& options) {
  const lowering::LoweringTable& table =
      options.lowering.table ? *options.lowering.table : lowering::LoweringTable::builtin();
  const auto is_known = [&](const ir::Node& node) { return lowering::can_lower(node, table); };
  // A decomposition may write into what it made, as a program may.
  const auto functional = [&](const expansion::Call& call) {
    std::unique_ptr<ir::Graph> graph = options.trace(call);
    if (graph != nullptr) importer::functionalize(*graph);
    return graph;
  };
  return expansion::expand(model, {functional, is_known});
}

PipelineReport convert(ir::Model& model, const PipelineOptions& options) {
  PipelineReport report;
  report.functionalized = importer::functionalize(*model.graph);
  if (options.outputs) keep_outputs(*model.graph, *options.outputs);

  if (options.trace) report.expanded = expand(model, options);
  lowering::lower(model, options.lowering);

  if (options.optimize) {
    options.optimize(model);
    lowering::widen_bfloat16(model, options.lowering.target);
    lowering::split_factors(model, options.lowering.target);
  }
  return report;
}

}  // namespace exportguard::pipeline
