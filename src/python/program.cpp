#include "exportguard/python/program.h"

#include <fmt/format.h>
#include <pybind11/embed.h>
#include <pybind11/stl.h>

#include <map>
#include <string>
#include <utility>

#include "exportguard/common/errors.h"
#include "exportguard/lowering/fused_attention.h"
#include "exportguard/optimizer/optimize.h"
#include "exportguard/optimizer/outline.h"
#include "exportguard/pipeline/pipeline.h"
#include "exportguard/python/interpreter.h"
#include "python/bindings.h"
#include "python/operator_trace.h"
#include "python/size_checks.h"

namespace exportguard::python {
namespace {

/// A program as Python reads it: its graph, the modules that are to be functions, by path, and where it holds.
struct ReadProgram {
  ir::Model model;
  std::map<std::string, optimizer::FunctionName> functions;
  std::vector<NamedCheck> checks;
  std::vector<NamedAxis> axis_names;
};

ReadProgram read(std::string_view expression, const std::vector<std::string>& modules_as_functions) {
  if (!Interpreter::is_running())
    throw Error("there is no Python interpreter; construct exportguard::python::Interpreter");
  const py::gil_scoped_acquire gil;
  try {
    const py::dict globals = py::module_::import("__main__").attr("__dict__");
    const py::object program = py::eval(std::string(expression), globals);
    const py::object found =
        py::module_::import("exportguard.reading").attr("read_program")(program, modules_as_functions);
    const py::object checks = found.attr("checks");
    ReadProgram result{std::move(found.attr("graph").cast<ir::Model&>()),
                       {},
                       checks.cast<std::vector<NamedCheck>>(),
                       found.attr("axis_names").cast<std::vector<NamedAxis>>()};

    using Names = std::map<std::string, std::pair<std::string, std::string>>;
    for (const auto& [path, name] : found.attr("functions").cast<Names>())
      result.functions.emplace(path, optimizer::FunctionName{name.first, name.second});
    return result;
  } catch (const py::error_already_set& error) {
    throw Error(fmt::format("cannot import `{}`: Python raised {}", expression, error.what()));
  }
}

}  // namespace

ir::Model import_program(std::string_view expression) { return read(expression, {}).model; }

ir::Model to_onnx(std::string_view expression, const ConversionOptions& options) {
  ReadProgram program = read(expression, options.modules_as_functions);

  const py::gil_scoped_acquire gil;
  const py::object trace = py::module_::import("exportguard.decompose").attr("trace");
  pipeline::PipelineOptions all{.lowering = options.lowering, .trace = operator_trace(trace)};
  if (options.lowering.table == nullptr) all.lowering.table = &lowering::table_with_fused_attention();
  all.optimize = [&](ir::Model& lowered) {
    optimizer::optimize(lowered, {.are_types_inferred = true});
    optimizer::outline_modules(lowered, program.functions);
  };
  const py::gil_scoped_release released;
  pipeline::convert(program.model, all);
  if (options.check_sizes) refuse_other_sizes(program.model, program.checks, program.axis_names);
  return std::move(program.model);
}

}  // namespace exportguard::python
