#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(StatisticsLowering, VarianceDividesByTheCountLessTheCorrection) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3]):
      %z: f32[3] = aten.var.correction(%x, [0], 1)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Shape(%x) {start=0, end=1}
  %1 = Squeeze(%0, %"constant.i64[0]")
  %2 = ReduceSum(%x, %"constant.i64[0]") {keepdims=1}
  %3 = Cast(%1) {to=1}
  %4 = Div(%2, %3)
  %5 = Sub(%x, %4)
  %6 = Mul(%5, %5)
  %7 = ReduceSum(%6, %"constant.i64[0]") {keepdims=0}
  %8 = Cast(%1) {to=1}
  %9 = Sub(%8, %constant.f32.1)
  %10 = Max(%9, %constant.f32.0)
  %z = Div(%7, %10)
  return (%z)
)");
}

}  // namespace
}  // namespace exportguard::lowering
