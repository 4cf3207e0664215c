#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

using ::testing::HasSubstr;

TEST(BesselLowering, IsComputedInFloat64) {
  const std::string text = lowered(R"(
    graph(%x: f32[n]):
      %y: f32[n] = aten.i0.default(%x)
      return (%y))");
  EXPECT_THAT(text, HasSubstr("Cast(%x) {to=11}"));
  EXPECT_THAT(text, HasSubstr("%y = Cast("));
}

}  // namespace
}  // namespace exportguard::lowering
