#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(CreationLowering, ZerosTakeSizesFromTheInputs) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3]):
      %s: int{b} = aten.sym_size.int(%x, 0)
      %z: i64[b,4] = aten.zeros.default([%s, 4], dtype:i64)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Shape(%x) {start=0, end=1}
  %1 = Concat(%0, %"constant.i64[4]") {axis=0}
  %z = ConstantOfShape(%1) {value=i64[1]{0}}
  return (%z)
)");
}

TEST(CreationLowering, ArangeOfASizeIsComputedInIntegers) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3]):
      %s: int{b} = aten.sym_size.int(%x, 0)
      %z: f32[b] = aten.arange.default(%s, dtype:f32)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Shape(%x) {start=0, end=1}
  %s = Squeeze(%0, %"constant.i64[0]")
  %1 = Range(%constant.i64.0, %s, %constant.i64.1)
  %z = Cast(%1) {to=1}
  return (%z)
)");
}

TEST(CreationLowering, ArangeWithAFractionalStepIsComputedInFloat64) {
  const std::string_view graph = R"(
    graph(%x: f32[2]):
      %z: f32[10] = aten.arange.start_step(0, 1, 0.1)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Range(%constant.f64.0, %constant.f64.1, %constant.f64.0.1)
  %z = Cast(%0) {to=1}
  return (%z)
)");
}

TEST(CreationLowering, TriangleIndicesAreConstants) {
  const std::string_view graph = R"(
    graph(%x: f32[2]):
      %z: i64[2,3] = aten.tril_indices.default(2, 2)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %z = Reshape(%"constant.i64[0,1,1,0,0,1]", %"constant.i64[2,3]")
  return (%z)
)");
}

}  // namespace
}  // namespace exportguard::lowering
