#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(ClassificationLowering, IsfiniteComparesTheMagnitudeWithInfinity) {
  const std::string_view graph = R"(
    graph(%x: f32[b]):
      %z: bool[b] = aten.isfinite.default(%x)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Abs(%x)
  %z = Less(%0, %constant.f32.inf)
  return (%z)
)");
}

TEST(ClassificationLowering, IntegersAreNeverNan) {
  const std::string_view graph = R"(
    graph(%x: i64[b]):
      %z: bool[b] = aten.isnan.default(%x)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Shape(%x) {start=0, end=1}
  %z = ConstantOfShape(%0) {value=bool[1]{false}}
  return (%z)
)");
}

}  // namespace
}  // namespace exportguard::lowering
