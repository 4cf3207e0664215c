#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(CumulativeLowering, CumsumOfBoolsRunsInInt64) {
  const std::string_view graph = R"(
    graph(%x: bool[b,3]):
      %z: i64[b,3] = aten.cumsum.default(%x, 1)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=7}
  %z = CumSum(%0, %constant.i64.1)
  return (%z)
)");
}

TEST(CumulativeLowering, CumprodIsAScanInFloat64) {
  const std::string_view graph = R"(
    graph(%x: f32[2,3]):
      %z: f32[2,3] = aten.cumprod.default(%x, 0)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=11}
  %1 = ConstantOfShape(%"constant.i64[3]") {value=f64[1]{1.0}}
  %2, %3 = Scan(%1, %0) {body=graph(%state, %element):
      %4 = Mul(%state, %element)
      %5 = Identity(%4)
      return (%4 as next, %5 as result), num_scan_inputs=1, scan_input_axes=[0], scan_output_axes=[0]}
  %z = Cast(%3) {to=1}
  return (%z)
)");
}

TEST(CumulativeLowering, CumsumOfOneNumberIsTheNumber) {
  const std::string_view graph = R"(
    graph(%x: f32[]):
      %z: f32[] = aten.cumsum.default(%x, 0)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  return (%x)
)");
}

}  // namespace
}  // namespace exportguard::lowering
