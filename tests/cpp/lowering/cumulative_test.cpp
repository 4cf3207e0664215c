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

TEST(CumulativeLowering, CumprodIsAScan) {
  const std::string_view graph = R"(
    graph(%x: f32[2,3]):
      %z: f32[2,3] = aten.cumprod.default(%x, 0)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = ConstantOfShape(%"constant.i64[3]") {value=f32[1]{1.0}}
  %1, %z = Scan(%0, %x) {body=graph(%state, %element):
      %2 = Mul(%state, %element)
      %3 = Identity(%2)
      return (%2 as next, %3 as result), num_scan_inputs=1, scan_input_axes=[0], scan_output_axes=[0]}
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
