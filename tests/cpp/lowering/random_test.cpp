#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exportguard/common/errors.h"
#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(RandomLowering, DropoutVanishesInEvaluation) {
  const std::string_view graph = R"(
    graph(%x: f32[b]):
      %y: f32[b] = aten.dropout.default(%x, 0.5, false)
      %z: f32[b] = aten.relu.default(%y)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %z = Relu(%x)
  return (%z)
)");
}

TEST(RandomLowering, RandnTakesTheShapeOfItsSizes) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3]):
      %s: int{b} = aten.sym_size.int(%x, 0)
      %z: f32[b] = aten.randn.default([%s])
      return (%z))";
  EXPECT_EQ(lowered(graph, 21), R"(  %0 = Shape(%x) {start=0, end=1}
  %1 = ConstantOfShape(%0) {value=f32[1]{0.0}}
  %z = RandomNormalLike(%1) {dtype=1}
  return (%z)
)");
}

TEST(RandomLowering, DrawsBitsWithDropoutFromOpset22On) {
  const std::string_view graph = R"(
    graph(%x: f32[4]):
      %z: f32[4] = aten.rand_like.default(%x)
      return (%z))";
  EXPECT_THAT(lowered(graph, 22), ::testing::HasSubstr("Dropout("));
}

}  // namespace
}  // namespace exportguard::lowering
