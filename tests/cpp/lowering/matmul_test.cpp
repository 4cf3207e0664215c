#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exportguard/common/errors.h"
#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(MatmulLowering, LinearOnMatricesIsGemmWithTheWeightAsItLies) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3], %w: f32[4,3], %c: f32[4]):
      %y: f32[b,4] = aten.linear.default(%x, %w, %c)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %y = Gemm(%x, %w, %c) {transB=1}
  return (%y)
)");
}

TEST(MatmulLowering, LinearAboveRank2TransposesTheWeight) {
  const std::string_view graph = R"(
    graph(%x: f32[b,s,3], %w: f32[4,3], %c: f32[4]):
      %y: f32[b,s,4] = aten.linear.default(%x, %w, %c)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Transpose(%w) {perm=[1, 0]}
  %1 = MatMul(%x, %0)
  %y = Add(%1, %c)
  return (%y)
)");
}

TEST(MatmulLowering, ProductsOfBytesAreComputedInInt32) {
  const std::string_view graph = R"(
    graph(%x: i8[2,3], %w: i8[3,4]):
      %y: i8[2,4] = aten.mm.default(%x, %w)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=6}
  %1 = Cast(%w) {to=6}
  %2 = MatMul(%0, %1)
  %y = Cast(%2) {to=3}
  return (%y)
)");
}

TEST(MatmulLowering, AddmmWithBetaZeroDropsTheSummand) {
  const std::string_view graph = R"(
    graph(%c: f32[4], %x: f32[b,3], %w: f32[3,4]):
      %y: f32[b,4] = aten.addmm.default(%c, %x, %w, 0, 2)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %y = Gemm(%x, %w) {alpha=2.0, beta=0.0}
  return (%y)
)");
}

TEST(MatmulLowering, ANegativeMatrixPowerIsAPowerOfTheInverse) {
  const std::string_view graph = R"(
    graph(%x: f32[3,3]):
      %y: f32[3,3] = aten.linalg_matrix_power.default(%x, -1)
      return (%y))";
  EXPECT_THAT(lowered(graph), testing::AllOf(testing::HasSubstr("Loop("), testing::HasSubstr("%y = Cast(")));
}

}  // namespace
}  // namespace exportguard::lowering
