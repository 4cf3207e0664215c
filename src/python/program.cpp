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

namespace exportguard::python {

ir::Model import_program(std::string_view expression) {
  if (!Interpreter::is_running())
    throw Error("there is no Python interpreter; construct exportguard::python::Interpreter");
  const py::gil_scoped_acquire gil;
  try {
    const py::dict globals = py::module_::import("__main__").attr("__dict__");
    const py::object program = py::eval(std::string(expression), globals);
    const py::object imported = py::module_::import("exportguard.export").attr("imported")(program);
    return std::move(imported.cast<ir::Model&>());
  } catch (const py::error_already_set& error) {
    throw Error(fmt::format("cannot import `{}`: Python raised {}", expression, error.what()));
  }
}

namespace {

/// The modules of a program that are to be functions, by path.
std::map<std::string, optimizer::FunctionName> functions_of(std::string_view expression,
                                                            const std::vector<std::string>& wanted) {
  if (wanted.empty()) return {};
  const py::dict globals = py::module_::import("__main__").attr("__dict__");
  const py::object found = py::module_::import("exportguard.module_functions")
                               .attr("functions_of_program")(py::eval(std::string(expression), globals), wanted);
  std::map<std::string, optimizer::FunctionName> functions;
  for (const auto& [path, name] : found.cast<std::map<std::string, std::pair<std::string, std::string>>>())
    functions.emplace(path, optimizer::FunctionName{name.first, name.second});
  return functions;
}

}  // namespace

ir::Model to_onnx(std::string_view expression, const lowering::LoweringOptions& options,
                  const std::vector<std::string>& modules_as_functions) {
  ir::Model model = import_program(expression);
  const py::gil_scoped_acquire gil;
  const auto functions = functions_of(expression, modules_as_functions);
  const py::object trace = py::module_::import("exportguard.decompose").attr("trace");
  pipeline::PipelineOptions all{.lowering = options, .trace = operator_trace(trace)};
  if (options.table == nullptr) all.lowering.table = &lowering::table_with_fused_attention();
  all.optimize = [&](ir::Model& lowered) {
    optimizer::optimize(lowered);
    optimizer::outline_modules(lowered, functions);
  };
  const py::gil_scoped_release released;
  pipeline::convert(model, all);
  return model;
}

}  // namespace exportguard::python
