#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

using ::testing::HasSubstr;

TEST(NumberTheoryLowering, TheDivisorIsEuclids) {
  const std::string text = lowered(R"(
    graph(%x: i32[n], %y: i32[n]):
      %z: i32[n] = aten.gcd.default(%x, %y)
      return (%z))");
  EXPECT_THAT(text, HasSubstr("Div("));
  EXPECT_THAT(text, HasSubstr("Loop("));
}

}  // namespace
}  // namespace exportguard::lowering
