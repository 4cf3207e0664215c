#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(AdaptivePoolingLowering, OneElementIsTheMean) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3,4,5]):
      %y: f32[b,3,1,1] = aten.adaptive_avg_pool2d.default(%x, [1, 1])
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %y = ReduceMean(%x, %"constant.i64[2,3]") {keepdims=1}
  return (%y)
)");
}

TEST(AdaptivePoolingLowering, OneElementOfWhatMayBeNothingIsAQuotient) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3,l]):
      %y: f32[b,3,1] = aten.adaptive_avg_pool1d.default(%x, [1])
      return (%y))";
  EXPECT_NE(lowered(graph).find("%y = Div("), std::string::npos);
}

TEST(AdaptivePoolingLowering, ADivisorOfTheSizeIsAPlainPool) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3,8]):
      %y: f32[b,3,4] = aten.adaptive_avg_pool1d.default(%x, [4])
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %y = AveragePool(%x) {kernel_shape=[2], strides=[2]}
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
