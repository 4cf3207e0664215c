#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "exportguard/common/errors.h"
#include "importer/functional.h"

TORCH_LIBRARY(exportguard_wrapped, library) {
  library.def("scale_(Tensor(a!) x, float factor) -> ()");
  library.def("add_into(Tensor(a!) x, Tensor y, Tensor(b!)? out) -> Tensor");
}

namespace exportguard::importer {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(AutoFunctionalized, WritesIntoASliceOfACopy) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[3,4]):
  %a: f32[3,4] = aten.relu.default(%x)
  %none, %b: f32[3,4] = higher_order.auto_functionalized_v2("exportguard_wrapped.scale_.default", 3.0, 0, 0, 1, 3, [%a]) {keywords=["factor", "_x_base_index", "_x_slice_dim", "_x_slice_start", "_x_slice_end", "_all_bases"]}
  return (%a, %b))"),
            ir::normalize(R"(
graph(%x: f32[3,4]):
  %a: f32[3,4] = aten.relu.default(%x)
  %0: f32[3,4] = aten.clone.default(%a)
  %1: f32[2,4] = aten.slice.Tensor(%0, 0, 1, 3)
  %2: f32[2,4] = exportguard_wrapped.scale_.default(%1, 3.0)
  %3: f32[3,4] = aten.slice_scatter.default(%0, %2, 0, 1, 3)
  return (%a, %3))"));
}

TEST(AutoFunctionalized, GivesResultsAndTheTensorsThatAreWritten) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[2], %y: f32[2]):
  %r: f32[2], %b: f32[2], %none = higher_order.auto_functionalized("exportguard_wrapped.add_into.default", %x, %y, None) {keywords=["x", "y", "out"]}
  return (%r, %b))"),
            ir::normalize(R"(
graph(%x: f32[2], %y: f32[2]):
  %0: f32[2] = aten.clone.default(%x)
  %1: f32[2], %2: f32[2] = exportguard_wrapped.add_into.default(%0, %y, None)
  return (%1, %2))"));
}

TEST(AutoFunctionalized, NamesAnOperatorThatTorchDoesNotKnow) {
  const auto convert = [] {
    functional(R"(
graph(%x: f32[2]):
  %none, %b: f32[2] = higher_order.auto_functionalized("gone.scale_.default", %x) {keywords=["x"]}
  return (%b))");
  };
  EXPECT_THAT(convert, ThrowsMessage<ImportError>(HasSubstr("wraps gone.scale_.default, which torch does not know")));
}

}  // namespace
}  // namespace exportguard::importer
