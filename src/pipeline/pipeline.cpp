#include "exportguard/pipeline/pipeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <string>

#include "exportguard/common/errors.h"
#include "exportguard/ir/places.h"
#include "exportguard/lowering/empty_products.h"
#include "exportguard/lowering/exact_factors.h"
#include "exportguard/lowering/kept_apart.h"
#include "exportguard/lowering/widening.h"
#include "operators/eager_dtypes.h"

namespace exportguard::pipeline {
namespace {

void keep_outputs(ir::Graph& graph, std::size_t count) {
  while (graph.output_count() > count) graph.erase_output(graph.output_count() - 1);
}

class DtypesOfEager {
 public:
  void collect(const ir::Graph& graph) {
    for (const ir::Node& node : graph) {
      for (const ir::Graph* body : node.subgraphs()) collect(*body);
      if (!node.is_torch()) continue;
      if (const std::optional<std::string> told = dtypes_.refusal_of(node)) add(node, *told);
    }
  }

  /// @throws LoweringError
  void require_none() const {
    if (!refused_.empty()) throw LoweringError(fmt::format("{}", fmt::join(refused_, "\n")));
  }

 private:
  void add(const ir::Node& node, const std::string& told) {
    refused_.insert(
        fmt::format("cannot lower {}: torch refuses operands of {} when it runs; convert with .to(dtype) what has "
                    "another one than the operator takes. torch says: {}",
                    ir::placed(node.qualified_name(), node.source()), operators::operand_dtypes(node), told));
  }

  operators::EagerDtypes dtypes_;
  std::set<std::string> refused_;
};

}  // namespace

void require_dtypes_of_eager(const ir::Graph& graph) {
  DtypesOfEager dtypes;
  dtypes.collect(graph);
  dtypes.require_none();
}

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

  require_dtypes_of_eager(*model.graph);
  if (options.trace) report.expanded = expand(model, options);
  lowering::lower(model, options.lowering);

  if (options.optimize) {
    options.optimize(model);
    lowering::widen_bfloat16(model, options.lowering.target);
    lowering::keep_factors(model, options.lowering.target);
    lowering::keep_apart(model, options.lowering.target);
    lowering::keep_empty_products(model, options.lowering.target);
  }
  return report;
}

}  // namespace exportguard::pipeline
