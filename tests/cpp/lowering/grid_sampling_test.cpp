#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exportguard/common/errors.h"
#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(GridSamplingLowering, ModesHaveOtherNamesBeforeOpset20) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3,h,w], %g: f32[b,i,j,2]):
      %y: f32[b,3,i,j] = aten.grid_sampler.default(%x, %g, 0, 1, false)
      return (%y))";
  EXPECT_THAT(lowered(graph, 18), testing::HasSubstr("mode=\"bilinear\", padding_mode=\"border\""));
  EXPECT_THAT(lowered(graph, 20), testing::HasSubstr("mode=\"linear\", padding_mode=\"border\""));
}

TEST(GridSamplingLowering, VolumesNeedOpset20) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3,d,h,w], %g: f32[b,i,j,k,3]):
      %y: f32[b,3,i,j,k] = aten.grid_sampler_3d.default(%x, %g, 0, 1, false)
      return (%y))";
  EXPECT_THAT([&] { lowered(graph, 18); }, testing::ThrowsMessage<LoweringError>(testing::HasSubstr(
                                               "grid_sample over volumes needs opset 20 or more, got 18")));
}

}  // namespace
}  // namespace exportguard::lowering
