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
      R"(  %0, %1 = MaxPool(%x) {kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0], dilations=[1, 1], ceil_mode=0}
  %2 = Shape(%x) {start=3, end=4}
  %3 = Mul(%"constant.i64[8]", %2)
  %4 = Squeeze(%3, %"constant.i64[0]")
  %i = Mod(%1, %4)
  %5 = IsNaN(%x)
  %6 = Cast(%5) {to=2}
  %7 = MaxPool(%6) {kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0], dilations=[1, 1], ceil_mode=0}
  %8 = Cast(%7) {to=9}
  %y = Where(%8, %constant.f32.nan, %0)
  return (%y, %i)
)");
}

}  // namespace
}  // namespace exportguard::lowering
