#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(EinsumLowering, TwoOperandsAreOneMatMul) {
  const std::string_view graph = R"(
    graph(%q: f32[b,h,s,8], %k: f32[b,h,t,8]):
      %y: f32[b,h,s,t] = aten.einsum.default("bhid,bhjd->bhij", [%q, %k])
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Transpose(%k) {perm=[0, 1, 3, 2]}
  %y = MatMul(%q, %0)
  return (%y)
)");
}

TEST(EinsumLowering, ADiagonalIsTakenByEinsum) {
  const std::string_view graph = R"(
    graph(%x: f32[3,3]):
      %y: f32[] = aten.einsum.default("ii", [%x])
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Einsum(%x) {equation="aa->a"}
  %y = ReduceSum(%0, %"constant.i64[0]") {keepdims=0}
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
