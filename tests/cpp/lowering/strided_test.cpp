#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(StridedLowering, AsStridedGathersPositionsOfTheMemory) {
  const std::string_view graph = R"(
    graph(%x: f32[12]):
      %y: f32[2,3] = aten.as_strided.default(%x, [2, 3], [1, 2])
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Mul(%"constant.i64[0,1]", %"constant.i64[1]")
  %1 = Unsqueeze(%0, %"constant.i64[1]")
  %2 = Add(%constant.i64.0, %1)
  %3 = Mul(%"constant.i64[0,1,2]", %"constant.i64[2]")
  %4 = Add(%2, %3)
  %y = Gather(%x, %4) {axis=0}
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
