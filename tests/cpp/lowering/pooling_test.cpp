#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(PoolingLowering, PositionsCountWithinAChannel) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3,8,w]):
      %y: f32[b,3,4,v], %i: i64[b,3,4,v] = aten.max_pool2d_with_indices.default(%x, [2, 2])
      return (%y, %i))";
  EXPECT_EQ(
      lowered(graph),
      R"(  %y, %0 = MaxPool(%x) {kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0], dilations=[1, 1], ceil_mode=0}
  %1 = Shape(%x) {start=3, end=4}
  %2 = Mul(%"constant.i64[8]", %1)
  %3 = Squeeze(%2, %"constant.i64[0]")
  %i = Mod(%0, %3)
  return (%y, %i)
)");
}

}  // namespace
}  // namespace exportguard::lowering
