#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

using ::testing::HasSubstr;

TEST(FactorizationsLowering, TheTriangleAloneNeedsNoSecondLoop) {
  const std::string text = lowered(R"(
    graph(%x: f32[4,3]):
      %q: f32[0], %r: f32[3,3] = aten.linalg_qr.default(%x, "r")
      return (%r))");
  EXPECT_THAT(text, HasSubstr("Loop("));
  EXPECT_THAT(text, HasSubstr("%r = Cast("));
}

}  // namespace
}  // namespace exportguard::lowering
