#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "optimizer/optimized.h"

namespace exportguard::optimizer {
namespace {

// ------------------------------------------------------------------------------------------------ slices

constexpr std::string_view kSlices = R"(
    graph(%x: f32[b,6], %zero: i64[1] = {0}, %two: i64[1] = {2}, %five: i64[1] = {5}, %end: i64[1] = {9223372036854775807}, %axis: i64[1] = {-1}):
      %a: f32[b,2] = Slice(%x, %zero, %two, %axis)
      %b: f32[b,3] = Slice(%x, %two, %five, %axis)
      %c: f32[b,1] = Slice(%x, %five, %end, %axis)
      return (%b, %a, %c))";

TEST(Slices, OfAWholeAxisAreASplit) {
  EXPECT_EQ(optimized_nodes(kSlices), R"(  %a, %b, %c = Split(%x, %"constant.i64[2,3,1]") {axis=1}
  return (%b, %a, %c)
)");
}

TEST(Slices, WithAGapStay) {
  const Optimized result = optimized(replaced(kSlices, "return (%b, %a, %c)", "return (%a, %c)"));
  EXPECT_THAT(result.nodes, testing::HasSubstr("Slice"));
  EXPECT_TRUE(declined(result.report, "slices_as_split", "the slices are not all of the axis"));
}

TEST(Slices, OfASizeThatChangesStay) {
  EXPECT_THAT(optimized_nodes(replaced(kSlices, "%x: f32[b,6]", "%x: f32[b,n]")), testing::HasSubstr("Slice"));
}

TEST(Slice, ThatIsAnOperandOfAConcatIsIt) {
  const std::string_view graph = R"(
    graph(%x: f32[b,2], %y: f32[b,3], %two: i64[1] = {2}, %end: i64[1] = {5}, %axis: i64[1] = {1}):
      %c: f32[b,5] = Concat(%x, %y) {axis=1}
      %z: f32[b,3] = Slice(%c, %two, %end, %axis)
      return (%z))";
  EXPECT_EQ(optimized_nodes(graph), "  return (%y)\n");
  const Optimized result = optimized(replaced(graph, "{5}", "{4}"));
  EXPECT_TRUE(declined(result.report, "slice_of_concat", "it is no operand of a Concat"));
}

TEST(Concat, LeavesOutWhatIsEmpty) {
  const std::string_view graph = R"(
    graph(%x: f32[b,2], %y: f32[b,0], %z: f32[b,n]):
      %c: f32[b,n + 2] = Concat(%x, %y, %z) {axis=1}
      return (%c))";
  EXPECT_EQ(optimized_nodes(graph), "  %c = Concat(%x, %z) {axis=1}\n  return (%c)\n");
}

// ------------------------------------------------------------------------------------------------ weights and products

TEST(Weight, ThatIsTakenApartBecomesSeveral) {
  const std::string_view graph = R"(
    graph(%x: f32[b,2], %w: f32[2,2,2] = {1, 2, 3, 4, 5, 6, 7, 8}, %first: i64[1] = {0}):
      %a: f32[1,2,2], %b: f32[1,2,2] = Split(%w) {axis=0, num_outputs=2}
      %c: f32[2,2] = Squeeze(%a, %first)
      %d: f32[2,2] = Squeeze(%b, %first)
      %y: f32[b,2] = MatMul(%x, %c)
      %z: f32[b,2] = MatMul(%y, %d)
      return (%z))";
  const std::string nodes = optimized_nodes(graph);
  EXPECT_THAT(nodes, testing::Not(testing::HasSubstr("S")));
  EXPECT_THAT(nodes, testing::HasSubstr("MatMul"));
}

constexpr std::string_view kRows = R"(
    graph(%x: f32[b,s,4], %w: f32[3,4], %c: f32[3], %rows: i64[2] = {-1, 4}, %to: i64[3]):
      %r: f32[b*s,4] = Reshape(%x, %rows)
      %g: f32[b*s,3] = Gemm(%r, %w, %c) {transB=1}
      %y: f32[b,s,3] = Reshape(%g, %to)
      return (%y))";

TEST(Gemm, OfRowsKeepsTheAxes) {
  EXPECT_EQ(optimized_nodes(kRows), R"(  %0 = Transpose(%w) {perm=[1, 0]}
  %1 = MatMul(%x, %0)
  %y = Add(%1, %c)
  return (%y)
)");
}

TEST(Gemm, WhoseRowsGetOtherAxesStays) {
  const Optimized result = optimized(replaced(kRows, "%y: f32[b,s,3]", "%y: f32[s,b,3]"));
  EXPECT_THAT(result.nodes, testing::HasSubstr("Gemm"));
  EXPECT_TRUE(declined(result.report, "gemm_of_rows", "the rows do not get their axes back"));
}

TEST(Gemm, WithAFactorStays) {
  EXPECT_THAT(optimized_nodes(replaced(kRows, "{transB=1}", "{transB=1, alpha=2.0}")), testing::HasSubstr("Gemm"));
}

// ------------------------------------------------------------------------------------------------ constants

TEST(Constants, OfAnyOperatorAreComputed) {
  const std::string_view graph = R"(
    graph(%x: i64[3], %zero: i64[] = {0}, %three: i64[] = {3}, %one: i64[] = {1}):
      %r: i64[3] = Range(%zero, %three, %one)
      %g: bool[3] = Greater(%r, %zero)
      %c: i64[3] = Cast(%g) {to=7}
      %y: i64[3] = Add(%x, %c)
      return (%y))";
  EXPECT_EQ(optimized_nodes(graph), R"(  %y = Add(%x, %"constant.i64[0,1,1]")
  return (%y)
)");
}

TEST(Constants, StayWhereTheResultIsLargerThanTheyAre) {
  const std::string_view graph = R"(
    graph(%x: f32[100,100], %one: f32[] = {1}, %to: i64[2] = {100, 100}):
      %e: f32[100,100] = Expand(%one, %to)
      %y: f32[100,100] = MatMul(%x, %e)
      return (%y))";
  const Optimized result = optimized(graph);
  EXPECT_THAT(result.nodes, testing::HasSubstr("Expand"));
  EXPECT_TRUE(declined(result.report, "constant_folded", "the result is larger than what it is of"));
}

TEST(Constants, ThatAreDrawnOrQuantizedStay) {
  const std::string_view graph = R"(
    graph(%q: i8[2] = {1, 2}, %s: f32[] = {0.5}):
      %d: f32[2] = DequantizeLinear(%q, %s)
      %r: f32[2] = RandomNormalLike(%s)
      %y: f32[2] = Add(%d, %r)
      return (%y))";
  EXPECT_EQ(optimized_nodes(graph), unchanged(graph));
}

}  // namespace
}  // namespace exportguard::optimizer
