#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

using ::testing::HasSubstr;

TEST(OrthogonalPolynomialsLowering, TheRecurrenceGoesUpToTheGreatestDegree) {
  const std::string text = lowered(R"(
    graph(%x: f32[n], %d: f32[n]):
      %y: f32[n] = aten.special_legendre_polynomial_p.default(%x, %d)
      return (%y))");
  EXPECT_THAT(text, HasSubstr("ReduceMax("));
  EXPECT_THAT(text, HasSubstr("Loop("));
}

}  // namespace
}  // namespace exportguard::lowering
