#include <string>

#include "exportguard/python/program.h"
#include "exportguard/serialization/onnx_file.h"
#include "python/python_test.h"

namespace exportguard::python {
namespace {

/// The models of the README's table, each exported as the table's command does: those at even or at odd places.
class ModelTable : public PythonTest, public testing::WithParamInterface<std::size_t> {
 protected:
  ModelTable() {
    exec(R"(
import logging, torch, exportguard
from exportguard.tracing import exported_module
from exportguard.models import BuildOptions, architectures, build_model
from exportguard.models.input_sets import input_sets
from exportguard.observed_shapes import observed_dynamic_shapes
from exportguard.request import ExportOptions, ExportRequest
logging.getLogger("exportguard").setLevel(logging.ERROR)

def exported_row(name, dtype):
    case = build_model(name, BuildOptions(dtype=getattr(torch, dtype)))
    with exportguard.torch_export_patches(patch=False):
        shapes = observed_dynamic_shapes(case.inputs, case.task.sizes, [one.sizes for one in input_sets(case)])
    return exported_module(ExportRequest.of(case.model, (), case.inputs(case.task.sizes), dynamic_shapes=shapes,
                          options=ExportOptions(), rewrite="auto")).program
)");
  }

  static void expect_same_bytes(const std::string& name, const char* dtype) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, name + " in " + dtype);
    exec(("program = exported_row('" + name + "', '" + dtype + "')").c_str());
    const std::string python = eval("exportguard.to_onnx(program, opset=22).to_bytes()").cast<std::string>();
    EXPECT_TRUE(python == serialization::to_bytes(to_onnx("program", {.lowering = {.opset = 22}})));
    EXPECT_GT(python.size(), 10'000U);
  }
};

TEST_P(ModelTable, IsConvertedToTheSameBytesFromCppAndFromPython) {
  const py::list names = eval("list(architectures())");
  ASSERT_GE(names.size(), 15U);
  for (std::size_t i = GetParam(); i < names.size(); i += 2) {
    const auto name = names[i].cast<std::string>();
    for (const char* dtype : {"float32", i % 4 < 2 ? "float16" : "bfloat16"}) expect_same_bytes(name, dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(Places, ModelTable, testing::Values(0U, 1U));

}  // namespace
}  // namespace exportguard::python
