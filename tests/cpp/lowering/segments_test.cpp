#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

using ::testing::HasSubstr;

TEST(SegmentsLowering, ARunIsAMaskOverTheAxis) {
  const std::string text = lowered(R"(
    graph(%x: f32[n,3], %l: i64[r]):
      %y: f32[r,3] = aten.segment_reduce.default(%x, "sum", %l)
      return (%y))");
  EXPECT_THAT(text, HasSubstr("%14 = Add(%l, %13)"));  // a Gather that finds nothing stops at wrong lengths
  EXPECT_THAT(text, HasSubstr("CumSum(%14"));
  EXPECT_THAT(text, HasSubstr("%y = ReduceSum("));
}

}  // namespace
}  // namespace exportguard::lowering
