#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(PixelsLowering, PixelShuffleIsADepthToSpace) {
  const std::string_view graph = R"(
    graph(%x: f32[n,8,3,3]):
      %y: f32[n,2,6,6] = aten.pixel_shuffle.default(%x, 2)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %y = DepthToSpace(%x) {blocksize=2, mode="CRD"}
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
