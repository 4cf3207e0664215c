#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(DropoutLowering, EvaluationLeavesTheInput) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3]):
      %y: f32[b,3] = aten.dropout.default(%x, 0.5, false)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  return (%x)
)");
}

TEST(DropoutLowering, TrainingIsDropout) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3]):
      %y: f32[b,3] = aten.dropout.default(%x, 0.5, true)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %y, %0 = Dropout(%x, %constant.f32.0.5, %constant.bool.1)
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
