#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(CastingLowering, ACastToTheSameDtypeDisappears) {
  const std::string_view graph = R"(
    graph(%x: f32[b]):
      %y: f32[b] = aten.to.dtype(%x, dtype:f32)
      %z: f16[b] = aten._to_copy.default(%y, dtype:f16)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %z = Cast(%x) {to=10}
  return (%z)
)");
}

TEST(CastingLowering, CopiesDisappear) {
  const std::string_view graph = R"(
    graph(%x: f32[b]):
      %y: f32[b] = aten.clone.default(%x)
      %z: f32[b] = aten.contiguous.default(%y)
      %w: f32[b] = aten.relu.default(%z)
      return (%w))";
  EXPECT_EQ(lowered(graph), R"(  %w = Relu(%x)
  return (%w)
)");
}

}  // namespace
}  // namespace exportguard::lowering
