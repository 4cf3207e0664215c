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
  %y = ReduceMean(%1, %"constant.i64[0,1]") {keepdims=0}
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
