#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(LossLowering, TheMeanSquaredError) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3], %t: f32[b,3]):
      %y: f32[] = aten.mse_loss.default(%x, %t)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Sub(%x, %t)
  %1 = Mul(%0, %0)
  %2 = Shape(%x) {start=0, end=1}
  %3 = Squeeze(%2, %"constant.i64[0]")
  %4 = Mul(%3, %constant.i64.3)
  %5 = ReduceSum(%1, %"constant.i64[0,1]") {keepdims=0}
  %6 = Cast(%4) {to=1}
  %y = Div(%5, %6)
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
