#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(JoiningLowering, CatLeavesOutAnEmptyVector) {
  const std::string_view graph = R"(
    graph(%x: f32[0], %y: f32[n,4], %z: f32[m,4]):
      %c: f32[n + m,4] = aten.cat.default([%x, %y, %z])
      return (%c))";
  EXPECT_EQ(lowered(graph), R"(  %c = Concat(%y, %z) {axis=0}
  return (%c)
)");
}

TEST(JoiningLowering, CatCastsToTheCommonDtype) {
  const std::string_view graph = R"(
    graph(%x: f32[n], %y: i64[n]):
      %c: f32[2*n] = aten.cat.default([%x, %y])
      return (%c))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%y) {to=1}
  %c = Concat(%x, %0) {axis=0}
  return (%c)
)");
}

TEST(JoiningLowering, StackAddsTheAxisFirst) {
  const std::string_view graph = R"(
    graph(%x: f32[n], %y: f32[n]):
      %c: f32[n,2] = aten.stack.default([%x, %y], -1)
      return (%c))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Unsqueeze(%x, %"constant.i64[1]")
  %1 = Unsqueeze(%y, %"constant.i64[1]")
  %c = Concat(%0, %1) {axis=1}
  return (%c)
)");
}

}  // namespace
}  // namespace exportguard::lowering
