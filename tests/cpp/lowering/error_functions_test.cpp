#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ErrorFunctionsLowering, TheInverseIsAPolynomialOfALogarithm) {
  const std::string text = lowered(R"(
    graph(%x: f32[n]):
      %y: f32[n] = aten.erfinv.default(%x)
      return (%y))");
  EXPECT_THAT(text, HasSubstr("Log("));
  EXPECT_THAT(text, Not(HasSubstr("Loop(")));
}

}  // namespace
}  // namespace exportguard::lowering
