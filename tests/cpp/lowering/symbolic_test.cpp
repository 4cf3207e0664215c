#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(SymbolicLowering, ASizeIsReadOnce) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3]):
      %s: int{b} = aten.sym_size.int(%x, 0)
      %t: int{b + 1} = operator.add(%s, 1)
      %u: int{2*b} = operator.mul(%s, 2)
      return (%t, %u))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Shape(%x) {start=0, end=1}
  %1 = Add(%0, %"constant.i64[1]")
  %t = Squeeze(%1, %"constant.i64[0]")
  %2 = Mul(%"constant.i64[2]", %0)
  %u = Squeeze(%2, %"constant.i64[0]")
  return (%t, %u)
)");
}

TEST(SymbolicLowering, ANumberOutOfATensorIsComputedAtRunTime) {
  const std::string_view graph = R"(
    graph(%x: i64[1]):
      %s: int{u0} = aten.item.default(%x)
      %t: int{u0//2} = operator.floordiv(%s, 2)
      return (%t))";
  EXPECT_EQ(lowered(graph), R"(  %s = Reshape(%x, %"constant.i64[]")
  %0 = Unsqueeze(%s, %"constant.i64[0]")
  %1 = Mod(%0, %"constant.i64[2]")
  %2 = Sub(%0, %1)
  %3 = Div(%2, %"constant.i64[2]")
  %t = Squeeze(%3, %"constant.i64[0]")
  return (%t)
)");
}

TEST(SymbolicLowering, AssertionsVanish) {
  const std::string_view graph = R"(
    graph(%x: i64[1]):
      %s: int{u0} = aten.item.default(%x)
      %c: bool = operator.ge(%s, 0)
      aten._assert_scalar.default(%c, "message")
      return (%s))";
  EXPECT_EQ(lowered(graph), R"(  %s = Reshape(%x, %"constant.i64[]")
  return (%s)
)");
}

}  // namespace
}  // namespace exportguard::lowering
