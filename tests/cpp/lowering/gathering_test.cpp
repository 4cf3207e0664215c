#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(GatheringLowering, IndexSelectIsAGather) {
  const std::string_view graph = R"(
    graph(%x: f32[n,4], %i: i64[m]):
      %y: f32[n,m] = aten.index_select.default(%x, 1, %i)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %y = Gather(%x, %i) {axis=1}
  return (%y)
)");
}

TEST(GatheringLowering, GatherOfANumberGoesThroughAVector) {
  const std::string_view graph = R"(
    graph(%x: f32[], %i: i64[]):
      %y: f32[] = aten.gather.default(%x, 0, %i)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Unsqueeze(%i, %"constant.i64[0]")
  %1 = Unsqueeze(%x, %"constant.i64[0]")
  %2 = GatherElements(%1, %0) {axis=0}
  %y = Squeeze(%2, %"constant.i64[0]")
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
