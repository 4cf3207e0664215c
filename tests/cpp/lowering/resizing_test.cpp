#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(ResizingLowering, ADoubledImageIsResized) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3,h,w]):
      %y: f32[b,3,2*h,2*w] = aten.upsample_nearest2d.vec(%x, None, [2.0, 2.0])
      return (%y))";
  EXPECT_EQ(
      lowered(graph),
      R"(  %y = Resize(%x, _, %constant.0) {mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"}
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
