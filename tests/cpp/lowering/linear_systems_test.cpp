#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(LinearSystemsLowering, ADeterminantIsALoopOverTheColumns) {
  const std::string text = lowered(R"(
    graph(%x: f32[b,3,3]):
      %y: f32[b] = aten.linalg_det.default(%x)
      return (%y))");
  EXPECT_THAT(text, HasSubstr("Loop(%constant.i64.3"));
  EXPECT_THAT(text, HasSubstr("ReduceProd("));
}

TEST(LinearSystemsLowering, AnInverseWithoutInfoComputesNone) {
  const std::string text = lowered(R"(
    graph(%x: f32[3,3]):
      %y: f32[3,3], %i: i32[] = aten.linalg_inv_ex.default(%x)
      return (%y))");
  EXPECT_THAT(text, Not(HasSubstr("ReduceMin(")));
}

}  // namespace
}  // namespace exportguard::lowering
