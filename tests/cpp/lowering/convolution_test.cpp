#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(ConvolutionLowering, SamePaddingOfAnEvenKernelIsLongerAtTheEnd) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3,h], %w: f32[4,3,2]):
      %y: f32[b,4,h] = aten.conv1d.padding(%x, %w, None, [1], "same", [1], 1)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %y = Conv(%x, %w) {strides=[1], pads=[0, 1], dilations=[1], group=1}
  return (%y)
)");
}

TEST(ConvolutionLowering, AnInputWithoutABatchGetsOne) {
  const std::string_view graph = R"(
    graph(%x: f32[3,h,w], %w: f32[4,3,1,1], %c: f32[4]):
      %y: f32[4,h,w] = aten.conv2d.default(%x, %w, %c)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Unsqueeze(%x, %"constant.i64[0]")
  %1 = Conv(%0, %w, %c) {strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1], group=1}
  %y = Squeeze(%1, %"constant.i64[0]")
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
