#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(IndexingLowering, OneTensorOfPositionsIsAGather) {
  const std::string_view graph = R"(
    graph(%x: f32[n,4], %i: i64[m]):
      %y: f32[m,4] = aten.index.Tensor(%x, [%i])
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %y = Gather(%x, %i) {axis=0}
  return (%y)
)");
}

TEST(IndexingLowering, OneMaskIsACompress) {
  const std::string_view graph = R"(
    graph(%x: f32[n,4], %m: bool[n]):
      %y: f32[u0,4] = aten.index.Tensor(%x, [%m])
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %y = Compress(%x, %m) {axis=0}
  return (%y)
)");
}

TEST(IndexingLowering, PositionsOfTwoAxesAreAGatherND) {
  const std::string_view graph = R"(
    graph(%x: f32[a,b,4], %i: i64[m], %j: i64[m]):
      %y: f32[m,4] = aten.index.Tensor(%x, [%i, %j])
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Unsqueeze(%i, %"constant.i64[1]")
  %1 = Unsqueeze(%j, %"constant.i64[1]")
  %2 = Concat(%0, %1) {axis=1}
  %y = GatherND(%x, %2)
  return (%y)
)");
}

TEST(IndexingLowering, ANumberWhereAMaskIsTrueIsAWhere) {
  const std::string_view graph = R"(
    graph(%x: f32[n,4], %m: bool[n], %v: f32[]):
      %y: f32[n,4] = aten.index_put.default(%x, [%m], %v)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Unsqueeze(%m, %"constant.i64[1]")
  %y = Where(%0, %v, %x)
  return (%y)
)");
}

TEST(IndexingLowering, AddedHalvesAreScatteredInFloat32) {
  const std::string_view graph = R"(
    graph(%x: f16[n,4], %i: i64[m], %v: f16[m,4]):
      %y: f16[n,4] = aten.index_put.default(%x, [%i], %v, true)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Unsqueeze(%i, %"constant.i64[1]")
  %1 = Cast(%x) {to=1}
  %2 = Cast(%v) {to=1}
  %3 = ScatterND(%1, %0, %2) {reduction="add"}
  %y = Cast(%3) {to=10}
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
