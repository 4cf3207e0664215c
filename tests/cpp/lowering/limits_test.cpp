#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(LimitsLowering, ClampWithoutALowerBoundIsAMinimum) {
  const std::string_view graph = R"(
    graph(%x: f32[b]):
      %z: f32[b] = aten.clamp.default(%x, None, 6.0)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %z = Min(%x, %constant.f32.6)
  return (%z)
)");
}

TEST(LimitsLowering, FmaxPrefersANumberToNan) {
  const std::string_view graph = R"(
    graph(%x: f32[b], %y: f32[b]):
      %z: f32[b] = aten.fmax.default(%x, %y)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Max(%x, %y)
  %1 = IsNaN(%y)
  %2 = Where(%1, %x, %0)
  %3 = IsNaN(%x)
  %z = Where(%3, %y, %2)
  return (%z)
)");
}

TEST(LimitsLowering, MaximumOfInt16RunsInInt32) {
  const std::string_view graph = R"(
    graph(%x: i16[b], %y: i16[b]):
      %z: i16[b] = aten.maximum.default(%x, %y)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=6}
  %1 = Cast(%y) {to=6}
  %2 = Max(%0, %1)
  %z = Cast(%2) {to=5}
  return (%z)
)");
}

}  // namespace
}  // namespace exportguard::lowering
