#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(NormLowering, TheNormOfOrder2IsReduceL2) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3]):
      %z: f32[b,1] = aten.linalg_vector_norm.default(%x, 2, [1], true)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %z = ReduceL2(%x, %"constant.i64[1]") {keepdims=1}
  return (%z)
)");
}

TEST(NormLowering, TheNormOfOrder0CountsWhatIsNotZero) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3]):
      %z: f32[b] = aten.linalg_vector_norm.default(%x, 0, [-1])
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=9}
  %1 = Cast(%0) {to=1}
  %z = ReduceSum(%1, %"constant.i64[1]") {keepdims=0}
  return (%z)
)");
}

}  // namespace
}  // namespace exportguard::lowering
