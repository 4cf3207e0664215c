#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(ComparisonLowering, ComparesIntegersWithAFloatAsFloats) {
  const std::string_view graph = R"(
    graph(%x: i64[b]):
      %z: bool[b] = aten.gt.Scalar(%x, 0.5)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=1}
  %z = Greater(%0, %constant.f32.0.5)
  return (%z)
)");
}

TEST(ComparisonLowering, NotEqualIsTheOppositeOfEqual) {
  const std::string_view graph = R"(
    graph(%x: i64[b], %y: i64[b]):
      %z: bool[b] = aten.ne.Tensor(%x, %y)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Equal(%x, %y)
  %z = Not(%0)
  return (%z)
)");
}

TEST(ComparisonLowering, LessOfBoolsRunsInUint8) {
  const std::string_view graph = R"(
    graph(%x: bool[b], %y: bool[b]):
      %z: bool[b] = aten.lt.Tensor(%x, %y)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=2}
  %1 = Cast(%y) {to=2}
  %z = Less(%0, %1)
  return (%z)
)");
}

TEST(ComparisonLowering, TensorsOfDifferentShapesAreNotEqual) {
  const std::string_view graph = R"(
    graph(%x: f32[2], %y: f32[3]):
      %z: bool = aten.equal.default(%x, %y)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  return (%constant.bool.0)
)");
}

}  // namespace
}  // namespace exportguard::lowering
