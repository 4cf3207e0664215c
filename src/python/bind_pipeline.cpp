#include <exportguard/lowering/fused_attention.h>
#include <exportguard/pipeline/pipeline.h>
#include <pybind11/stl.h>

#include <algorithm>

#include "python/bindings.h"
#include "python/converters.h"
#include "python/operator_trace.h"

namespace exportguard::python {
namespace {

pipeline::PipelineOptions options_with(const py::object& trace) {
  pipeline::PipelineOptions options;
  if (!trace.is_none()) options.trace = operator_trace(trace);
  return options;
}

using Converters = std::map<std::string, py::object>;

/// The table without some rows: torch takes these operators apart.
lowering::LoweringTable table_without(const lowering::LoweringTable& rows, const std::vector<std::string>& targets) {
  lowering::LoweringTable kept;
  for (const std::string& target : rows.targets())
    if (std::ranges::find(targets, target) == targets.end()) kept.add(target, *rows.find(target));
  return kept;
}

std::pair<std::size_t, std::size_t> convert(ir::Model& model, int opset, const py::object& trace,
                                            std::optional<std::size_t> outputs, std::string_view target,
                                            bool fused_attention, const Converters& converters,
                                            const std::vector<std::string>& decompositions) {
  pipeline::PipelineOptions options = options_with(trace);
  options.lowering.opset = opset;
  options.lowering.target = lowering::target(target);
  options.outputs = outputs;
  const lowering::LoweringTable& rows =
      fused_attention ? lowering::table_with_fused_attention() : lowering::LoweringTable::builtin();
  std::optional<lowering::LoweringTable> own;
  if (!decompositions.empty()) own = table_without(rows, decompositions);
  if (!converters.empty()) own = table_with(own ? *own : rows, converters);
  options.lowering.table = own ? &*own : &rows;
  const py::gil_scoped_release released;
  const pipeline::PipelineReport report = pipeline::convert(model, options);
  return {report.functionalized.rewritten, report.expanded};
}

std::size_t expand(ir::Model& model, const py::object& trace) { return pipeline::expand(model, options_with(trace)); }

}  // namespace

void bind_pipeline(py::module_& m) {
  const lowering::LoweringOptions defaults;
  bind_operator_trace(m);
  m.def(
      "convert", &convert, py::arg("model"), py::kw_only(), py::arg("opset") = defaults.opset,
      py::arg("trace") = py::none(), py::arg("outputs") = py::none(),
      py::arg("target") = lowering::name(defaults.target), py::arg("fused_attention") = false,
      py::arg("converters") = Converters(), py::arg("decompositions") = std::vector<std::string>(),
      "From a program as it was imported to ONNX, in place; returns how many writes were made functional and how "
      "many nodes expanded. trace(target, arguments) takes an operator without a lowering apart; only the first "
      "`outputs` outputs stay: behind them come those of written inputs and buffers. converters: for a torch operator "
      "the function (GraphScope, arguments) that converts it. decompositions: operators that are taken apart although "
      "they have a lowering.");
  m.def("expand", &expand, py::arg("model"), py::arg("trace"),
        "Replaces operators without a lowering by what trace(target, arguments) makes of each; returns how many.");
}

}  // namespace exportguard::python
