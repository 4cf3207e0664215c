#include "exportguard/python/program.h"

#include <fmt/format.h>
#include <pybind11/embed.h>

#include <string>

#include "exportguard/common/errors.h"
#include "exportguard/lowering/fused_attention.h"
#include "exportguard/optimizer/optimize.h"
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

ir::Model to_onnx(std::string_view expression, const lowering::LoweringOptions& options) {
  ir::Model model = import_program(expression);
  const py::gil_scoped_acquire gil;
  const py::object trace = py::module_::import("exportguard.decompose").attr("trace");
  pipeline::PipelineOptions all{.lowering = options, .trace = operator_trace(trace)};
  if (options.table == nullptr) all.lowering.table = &lowering::table_with_fused_attention();
  all.optimize = [](ir::Model& lowered) { optimizer::optimize(lowered); };
  const py::gil_scoped_release released;
  pipeline::convert(model, all);
  return model;
}

}  // namespace exportguard::python
