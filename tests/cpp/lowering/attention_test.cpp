#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exportguard/common/errors.h"
#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(AttentionLowering, WithoutAMaskItIsMatMulSoftmaxMatMul) {
  const std::string_view graph = R"(
    graph(%q: f32[b,2,s,4], %k: f32[b,2,t,4], %v: f32[b,2,t,4]):
      %y: f32[b,2,s,4] = aten.scaled_dot_product_attention.default(%q, %k, %v)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Mul(%q, %constant.f32.0.5)
  %1 = Transpose(%k) {perm=[0, 1, 3, 2]}
  %2 = MatMul(%0, %1)
  %3 = Softmax(%2) {axis=-1}
  %y = MatMul(%3, %v)
  return (%y)
)");
}

TEST(AttentionLowering, AMaskZeroesTheQueriesThatSeeNoKey) {
  const std::string_view graph = R"(
    graph(%q: f32[b,2,s,4], %k: f32[b,2,t,4], %v: f32[b,2,t,4], %m: bool[b,1,s,t]):
      %y: f32[b,2,s,4] = aten.scaled_dot_product_attention.default(%q, %k, %v, %m)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Mul(%q, %constant.f32.0.5)
  %1 = Transpose(%k) {perm=[0, 1, 3, 2]}
  %2 = MatMul(%0, %1)
  %3 = Where(%m, %constant.f32.0, %constant.f32.-inf)
  %4 = Add(%2, %3)
  %5 = Softmax(%4) {axis=-1}
  %6 = MatMul(%5, %v)
  %7 = Cast(%m) {to=2}
  %8 = ReduceMax(%7, %"constant.i64[3]") {keepdims=1}
  %9 = Cast(%8) {to=9}
  %y = Where(%9, %6, %constant.f32.0)
  return (%y)
)");
}

TEST(AttentionLowering, HeadsThatGroupsDoNotDivideAreRefused) {
  const std::string_view graph = R"(
    graph(%q: f32[1,3,s,4], %k: f32[1,2,t,4], %v: f32[1,2,t,4]):
      %y: f32[1,3,s,4] = aten.scaled_dot_product_attention.default(%q, %k, %v, None, 0.0, false, None, true)
      return (%y))";
  EXPECT_THAT([&] { lowered(graph); },
              testing::ThrowsMessage<LoweringError>(testing::HasSubstr(
                  "enable_gqa needs a known number of query heads that the number of key heads divides")));
}

}  // namespace
}  // namespace exportguard::lowering
