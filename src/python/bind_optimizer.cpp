#include <exportguard/optimizer/optimize.h>
#include <exportguard/optimizer/outline.h>
#include <fmt/format.h>
#include <pybind11/stl.h>

#include "exportguard/common/errors.h"
#include "python/bindings.h"
#include "python/own_patterns.h"

namespace exportguard::python {
namespace {

namespace opt = optimizer;

opt::Target target_named(const std::string& name) {
  for (const auto target : {opt::Target::kPortable, opt::Target::kOnnxRuntime, opt::Target::kOnnxRuntimeGenai})
    if (name == opt::name_of(target)) return target;
  throw InvalidArgument(fmt::format("target must be 'portable', 'onnxruntime' or 'onnxruntime-genai', got '{}'", name));
}

py::dict as_dict(const opt::Report& report) {
  py::list patterns;
  for (const opt::PatternReport& pattern : report.patterns) {
    patterns.append(py::make_tuple(pattern.name, pattern.applied, pattern.seconds, pattern.refusals));
  }
  py::dict result;
  result["patterns"] = patterns;
  result["nodes_before"] = report.nodes_before;
  result["nodes_after"] = report.nodes_after;
  result["seconds"] = report.seconds;
  return result;
}

/// The built-in patterns and those of the caller.
opt::PatternTable table_with(const std::vector<py::dict>& own) {
  opt::PatternTable table = opt::PatternTable::builtin();
  for (const py::dict& description : own) table.add(own_pattern(description));
  return table;
}

py::dict optimize(ir::Model& model, const std::string& target, const std::vector<std::string>& only,
                  bool inline_functions, const std::vector<py::dict>& own, bool are_types_inferred,
                  std::int64_t positions) {
  const opt::PatternTable table = table_with(own);  // destroyed with the GIL held
  opt::OptimizeOptions options;
  options.target = target_named(target);
  options.table = &table;
  options.only = only;
  options.inlines_functions = inline_functions;
  options.are_types_inferred = are_types_inferred;
  options.positions = positions;
  opt::Report report;
  {
    const py::gil_scoped_release release;
    report = opt::optimize(model, options);
  }
  return as_dict(report);
}

std::size_t outline_modules(ir::Model& model,
                            const std::map<std::string, std::pair<std::string, std::string>>& modules) {
  std::map<std::string, opt::FunctionName> named;
  for (const auto& [path, name] : modules) named.emplace(path, opt::FunctionName{name.first, name.second});
  const py::gil_scoped_release release;
  return opt::outline_modules(model, named);
}

py::list optimizer_patterns() {
  py::list result;
  for (const opt::Pattern& pattern : opt::PatternTable::builtin().patterns()) {
    result.append(py::make_tuple(std::string(pattern.name), std::string(pattern.matches), std::string(pattern.makes),
                                 pattern.opset, std::string(opt::name_of(pattern.target))));
  }
  return result;
}

}  // namespace

void bind_optimizer(py::module_& m) {
  m.def("optimize", &optimize, py::arg("model"), py::kw_only(), py::arg("target") = "portable",
        py::arg("only") = std::vector<std::string>(), py::arg("inline_functions") = false,
        py::arg("own") = std::vector<py::dict>(), py::arg("are_types_inferred") = false, py::arg("positions") = 0,
        "Improves the model in place; what was done, as (pattern, times, seconds, refusals) and counts of nodes. own: "
        "patterns as `exportguard.Pattern` describes them. are_types_inferred: the model was made here and not read. "
        "positions: the most that a text has, 0 if that is not known.");
  m.def("keeps_caches_in_one_buffer", &opt::keeps_caches_in_one_buffer, py::arg("model"),
        "Whether all inputs of four axes are caches that may be buffers longer than what they hold.");
  m.def("outline_modules", &outline_modules, py::arg("model"), py::arg("modules"),
        "Makes each of these modules, {path: (domain, name)}, calls of local functions; returns how many calls.");
  m.def("optimizer_patterns", &optimizer_patterns,
        "(name, what it matches, what it makes, first opset, target) of each.");
  m.def("optimizer_passes", &opt::pass_names, "What the optimizer does beside patterns.");
}

}  // namespace exportguard::python
