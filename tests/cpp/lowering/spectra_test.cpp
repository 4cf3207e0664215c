#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

using ::testing::HasSubstr;

TEST(SpectraLowering, SingularValuesStopWhenAllColumnsAreOrthogonal) {
  const std::string text = lowered(R"(
    graph(%x: f32[4,3]):
      %s: f32[3] = aten.linalg_svdvals.default(%x)
      return (%s))");
  EXPECT_THAT(text, HasSubstr("Loop("));
  EXPECT_THAT(text, HasSubstr("ReduceMax("));
  EXPECT_THAT(text, HasSubstr("TopK("));
}

}  // namespace
}  // namespace exportguard::lowering
