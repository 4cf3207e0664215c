#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exportguard/common/errors.h"
#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(ReductionLowering, SumOfBoolsCountsInInt64) {
  const std::string_view graph = R"(
    graph(%x: bool[b,3]):
      %z: i64[b] = aten.sum.dim_IntList(%x, [1])
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=7}
  %z = ReduceSum(%0, %"constant.i64[1]") {keepdims=0}
  return (%z)
)");
}

TEST(ReductionLowering, MeanOverNoAxesIsOverAll) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3]):
      %z: f32[] = aten.mean.dim(%x, [])
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Shape(%x) {start=0, end=1}
  %1 = Squeeze(%0, %"constant.i64[0]")
  %2 = Mul(%1, %constant.i64.3)
  %3 = ReduceSum(%x, %"constant.i64[0,1]") {keepdims=0}
  %4 = Cast(%2) {to=1}
  %z = Div(%3, %4)
  return (%z)
)");
}

TEST(ReductionLowering, ArgmaxFindsTheFirstNan) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3]):
      %z: i64[b] = aten.argmax.default(%x, 1)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = ArgMax(%x) {axis=1, keepdims=0}
  %1 = IsNaN(%x)
  %2 = Cast(%1) {to=2}
  %3 = ReduceMax(%2, %"constant.i64[1]") {keepdims=0}
  %4 = Cast(%3) {to=9}
  %5 = ArgMax(%2) {axis=1, keepdims=0}
  %z = Where(%4, %5, %0)
  return (%z)
)");
}

TEST(ReductionLowering, AnyIsReducedInUint8) {
  const std::string_view graph = R"(
    graph(%x: bool[b,3]):
      %z: bool[b] = aten.any.dim(%x, 1)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=2}
  %1 = ReduceMax(%0, %"constant.i64[1]") {keepdims=0}
  %z = Cast(%1) {to=9}
  return (%z)
)");
}

TEST(ReductionLowering, AnAxisOutOfRangeIsNamed) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3]):
      %z: f32[b] = aten.argmax.default(%x, 2)
      return (%z))";
  EXPECT_THAT([&] { lowered(graph); },
              testing::ThrowsMessage<LoweringError>(testing::HasSubstr("axis must be between -2 and 1, got 2")));
}

}  // namespace
}  // namespace exportguard::lowering
