#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(SoftmaxLowering, TheDtypeArgumentComesFirst) {
  const std::string_view graph = R"(
    graph(%x: f16[b,3]):
      %y: f32[b,3] = aten.softmax.int(%x, -1, dtype:f32)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=1}
  %y = Softmax(%0) {axis=1}
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
