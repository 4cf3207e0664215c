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
  %2 = ReduceMean(%x, %"constant.i64[0]") {keepdims=1}
  %3 = Sub(%x, %2)
  %4 = Mul(%3, %3)
  %5 = ReduceSum(%4, %"constant.i64[0]") {keepdims=0}
  %6 = Cast(%1) {to=1}
  %7 = Sub(%6, %constant.f32.1)
  %8 = Max(%7, %constant.f32.0)
  %z = Div(%5, %8)
  return (%z)
)");
}

}  // namespace
}  // namespace exportguard::lowering
