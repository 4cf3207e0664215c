#include <exportguard/lowering/empty_products.h>
#include <exportguard/lowering/exact_factors.h>
#include <exportguard/lowering/fused_attention.h>
#include <exportguard/lowering/kept_apart.h>
#include <exportguard/lowering/lower.h>
#include <exportguard/lowering/size_checks.h>
#include <exportguard/lowering/widening.h>
#include <pybind11/stl.h>

#include "python/bindings.h"

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

using TextRelation = std::tuple<std::string, std::string, std::string, bool>;
using NamedSize = std::tuple<std::string, std::string, std::int64_t>;
using NamedAxis = std::tuple<std::string, std::int64_t, std::string>;
using NamedCheck = std::tuple<std::string, std::vector<TextRelation>, std::vector<NamedSize>>;

std::size_t refuse_other_sizes(ir::Model& model, const std::vector<NamedCheck>& checks,
                               const std::vector<NamedAxis>& names) {
  std::vector<lowering::SizeCheck> made;
  for (const auto& [condition, relations, sizes] : checks) {
    lowering::SizeCheck& check = made.emplace_back();
    check.condition = condition;
    for (const auto& [op, first, second, holds] : relations) {
      check.any_of.push_back({op, SymExpr::parse(first), SymExpr::parse(second), holds});
    }
    for (const auto& [symbol, input, axis] : sizes) check.sizes.push_back({symbol, input, axis});
  }
  std::vector<lowering::AxisName> called;
  for (const auto& [input, axis, name] : names) called.push_back({input, axis, name});
  return lowering::refuse_other_sizes(model, made, called);
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
