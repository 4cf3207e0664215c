#include <exportguard/lowering/empty_products.h>
#include <exportguard/lowering/exact_factors.h>
#include <exportguard/lowering/fused_attention.h>
#include <exportguard/lowering/kept_apart.h>
#include <exportguard/lowering/lower.h>
#include <exportguard/lowering/widening.h>
#include <pybind11/stl.h>

#include "python/bindings.h"
#include "python/size_checks.h"

namespace exportguard::python {
namespace {

void lower(ir::Model& model, int opset, bool fused_attention, std::string_view target) {
  lowering::lower(model, {.opset = opset,
                          .table = fused_attention ? &lowering::table_with_fused_attention() : nullptr,
                          .target = lowering::target(target)});
}

std::map<std::string, std::vector<std::string>> target_kernels(std::string_view target) {
  std::map<std::string, std::vector<std::string>> rows;
  for (const auto& [op, dtypes] : lowering::kernels(lowering::target(target))) {
    for (const DType dtype : dtypes) rows[op].emplace_back(name(dtype));
  }
  return rows;
}

std::vector<std::string> lowering_targets() { return lowering::LoweringTable::builtin().targets(); }

}  // namespace

void bind_lowering(py::module_& m) {
  using ReleaseGil = py::call_guard<py::gil_scoped_release>;
  m.def("lower", &lower, py::arg("model"), py::arg("opset") = lowering::LoweringOptions().opset, py::kw_only(),
        py::arg("fused_attention") = false, py::arg("target") = lowering::name(lowering::LoweringOptions().target),
        ReleaseGil(), "Replaces every torch operator of the model by ONNX operators, in place.");
  m.def("target_kernels", &target_kernels, py::arg("target"),
        "For each ONNX operator that the target does not run in every dtype, those that it does.");
  m.def(
      "widen_bfloat16",
      [](ir::Model& model, std::string_view target) {
        return lowering::widen_bfloat16(model, lowering::target(target));
      },
      py::arg("model"), py::arg("target"),
      "Casts to float32 around every ONNX node that the target has no bfloat16 kernel for, in place.");
  m.def(
      "keep_factors",
      [](ir::Model& model, std::string_view target) { return lowering::keep_factors(model, lowering::target(target)); },
      py::arg("model"), py::arg("target"),
      "Keeps the digits of numbers that the target would make attributes of products of float64, in place.");
  m.def(
      "keep_apart",
      [](ir::Model& model, std::string_view target) { return lowering::keep_apart(model, lowering::target(target)); },
      py::arg("model"), py::arg("target"),
      "Keeps nodes apart that the target would merge into something else, in place.");
  m.def(
      "keep_empty_products",
      [](ir::Model& model, std::string_view target) {
        return lowering::keep_empty_products(model, lowering::target(target));
      },
      py::arg("model"), py::arg("target"),
      "Keeps products of matrices without elements from what the target makes of them, in place.");
  m.def(
      "refuse_other_sizes", &refuse_other_sizes, py::arg("model"), py::arg("checks"), py::arg("names"),
      "Makes the model stop at sizes for which a condition does not hold, in place; returns how many are checked. Each "
      "is a text for users, relations of which one holds, (op, first, second, holds), and the sizes that their symbols "
      "are, (symbol, input, axis). `names` are what users call axes, (input, axis, name).");
  m.def("lowering_targets", &lowering_targets, ReleaseGil(), "The operators that can be lowered, by torch's name.");
}

}  // namespace exportguard::python
