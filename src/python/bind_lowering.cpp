#include <exportguard/lowering/fused_attention.h>
#include <exportguard/lowering/lower.h>
#include <pybind11/stl.h>

#include "python/bindings.h"

namespace exportguard::python {
namespace {

void lower(ir::Model& model, int opset, bool fused_attention) {
  lowering::lower(model,
                  {.opset = opset, .table = fused_attention ? &lowering::table_with_fused_attention() : nullptr});
}

std::vector<std::string> lowering_targets() { return lowering::LoweringTable::builtin().targets(); }

}  // namespace

void bind_lowering(py::module_& m) {
  using ReleaseGil = py::call_guard<py::gil_scoped_release>;
  m.def("lower", &lower, py::arg("model"), py::arg("opset") = lowering::LoweringOptions().opset, py::kw_only(),
        py::arg("fused_attention") = false, ReleaseGil(),
        "Replaces every torch operator of the model by ONNX operators, in place.");
  m.def("lowering_targets", &lowering_targets, ReleaseGil(), "The operators that can be lowered, by torch's name.");
}

}  // namespace exportguard::python
