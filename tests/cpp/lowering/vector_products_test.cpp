#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(VectorProductsLowering, CrossTurnsBothFactors) {
  const std::string_view graph = R"(
    graph(%x: f32[n,3], %y: f32[n,3]):
      %z: f32[n,3] = aten.linalg_cross.default(%x, %y)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Gather(%y, %"constant.i64[2,0,1]") {axis=1}
  %1 = Gather(%x, %"constant.i64[1,2,0]") {axis=1}
  %2 = Mul(%1, %0)
  %3 = Gather(%y, %"constant.i64[1,2,0]") {axis=1}
  %4 = Gather(%x, %"constant.i64[2,0,1]") {axis=1}
  %5 = Mul(%4, %3)
  %z = Sub(%2, %5)
  return (%z)
)");
}

}  // namespace
}  // namespace exportguard::lowering
