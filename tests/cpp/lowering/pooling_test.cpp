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
  %5 = Mod(%1, %4)
  %6 = Mul(%"constant.i64[8]", %2)
  %7 = Squeeze(%6, %"constant.i64[0]")
  %8 = Range(%constant.i64.0, %7, %constant.i64.1)
  %9 = Cast(%8) {to=11}
  %10 = Concat(%"constant.i64[8]", %2) {axis=0}
  %11 = Reshape(%9, %10) {allowzero=1}
  %12 = IsNaN(%x)
  %13 = Where(%12, %11, %constant.f64.-1)
  %14 = MaxPool(%13) {kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0], dilations=[1, 1], ceil_mode=0}
  %15 = GreaterOrEqual(%14, %constant.f64.0)
  %y = Where(%15, %constant.f32.nan, %0)
  %16 = Cast(%14) {to=7}
  %i = Where(%15, %16, %5)
  return (%y, %i)
)");
}

}  // namespace
}  // namespace exportguard::lowering
