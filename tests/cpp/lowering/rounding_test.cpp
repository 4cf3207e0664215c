#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(RoundingLowering, RoundingAnIntegerDoesNothing) {
  const std::string_view graph = R"(
    graph(%x: i64[b]):
      %z: i64[b] = aten.ceil.default(%x)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  return (%x)
)");
}

TEST(RoundingLowering, RoundToNegativeDecimalsDividesFirst) {
  const std::string_view graph = R"(
    graph(%x: f32[b]):
      %z: f32[b] = aten.round.decimals(%x, -2)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Div(%x, %constant.f32.100)
  %1 = Round(%0)
  %z = Mul(%1, %constant.f32.100)
  return (%z)
)");
}

}  // namespace
}  // namespace exportguard::lowering
