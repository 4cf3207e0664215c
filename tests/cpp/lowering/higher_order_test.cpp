#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(HigherOrderLowering, CondIsAnIfWhoseBranchesReadFromOutside) {
  const std::string_view graph = R"(
    graph(%p: bool[], %x: f32[n], %y: f32[n]):
      %z: f32[n] = higher_order.cond(%p, None, None, [%x, %y]) {true_fn=graph(%a: f32[n], %b: f32[n]):
          %s: f32[n] = aten.add.Tensor(%a, %b)
          return (%s), false_fn=graph(%c: f32[n], %d: f32[n]):
          return (%c)}
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %z = If(%p) {then_branch=graph():
      %s = Add(%x, %y)
      return (%s), else_branch=graph():
      %0 = Identity(%x)
      return (%0)}
  return (%z)
)");
}

TEST(HigherOrderLowering, WhileLoopTestsBeforeTheFirstStep) {
  const std::string_view graph = R"(
    graph(%x: f32[n], %w: f32[n]):
      %z: f32[n] = higher_order.while_loop(None, None, [%x], [%w]) {cond_fn=graph(%a: f32[n], %b: f32[n]):
          %m: f32[] = aten.sum.default(%a)
          %p: bool[] = aten.lt.Scalar(%m, 10)
          return (%p), body_fn=graph(%c: f32[n], %d: f32[n]):
          %s: f32[n] = aten.add.Tensor(%c, %d)
          return (%s)}
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %m = ReduceSum(%x) {keepdims=0}
  %p = Less(%m, %constant.f32.10)
  %z = Loop(_, %p, %x) {body=graph(%iteration, %continues, %c):
      %s = Add(%c, %w)
      %m_1 = ReduceSum(%s) {keepdims=0}
      %p_1 = Less(%m_1, %constant.f32.10)
      return (%p_1, %s)}
  return (%z)
)");
}

TEST(HigherOrderLowering, ScanHandsItsStateOn) {
  const std::string_view graph = R"(
    graph(%s: f32[4], %x: f32[3,4]):
      %z: f32[4], %y: f32[3,4] = higher_order.scan(None, [%s], [%x], []) {combine_fn=graph(%a: f32[4], %b: f32[4]):
          %c: f32[4] = aten.add.Tensor(%a, %b)
          %d: f32[4] = aten.mul.Tensor(%a, %b)
          return (%c, %d)}
      return (%z, %y))";
  EXPECT_EQ(lowered(graph), R"(  %z, %y = Scan(%s, %x) {body=graph(%a, %b):
      %c = Add(%a, %b)
      %d = Mul(%a, %b)
      return (%c, %d), num_scan_inputs=1}
  return (%z, %y)
)");
}

TEST(HigherOrderLowering, ALoopGoesThroughWhatMayHaveNoSlice) {
  const std::string_view graph = R"(
    graph(%s: f32[m], %x: f32[n,m]):
      %z: f32[m], %y: f32[n,m] = higher_order.scan(None, [%s], [%x], []) {combine_fn=graph(%a: f32[m], %b: f32[m]):
          %c: f32[m] = aten.add.Tensor(%a, %b)
          %d: f32[m] = aten.mul.Tensor(%a, %b)
          return (%c, %d)}
      return (%z, %y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Shape(%x) {start=0, end=1}
  %1 = Squeeze(%0, %"constant.i64[0]")
  %z, %2 = Loop(%1, %constant.bool.1, %s) {body=graph(%iteration, %continues, %a):
      %3 = Gather(%x, %iteration) {axis=0}
      %c = Add(%a, %3)
      %d = Mul(%a, %3)
      %4 = Identity(%constant.bool.1)
      return (%4, %c, %d)}
  %5 = Shape(%s) {start=0, end=1}
  %6 = Concat(%0, %5) {axis=0}
  %y = Reshape(%2, %6) {allowzero=1}
  return (%z, %y)
)");
}

TEST(HigherOrderLowering, ALoopOfWhichNothingComesOutIsLeftOut) {
  const std::string_view graph = R"(
    graph(%x: f32[n,4]):
      higher_order.scan(None, [], [%x], []) {combine_fn=graph(%b: f32[4]):
          return ()}
      %z: f32[n,4] = aten.neg.default(%x)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %z = Neg(%x)
  return (%z)
)");
}

TEST(HigherOrderLowering, AConditionKnownAtConversionLeavesOneBranch) {
  const std::string_view graph = R"(
    graph(%x: f32[n]):
      %z: f32[n] = higher_order.cond(true, None, None, [%x]) {true_fn=graph(%a: f32[n]):
          %s: f32[n] = aten.neg.default(%a)
          return (%s), false_fn=graph(%c: f32[n]):
          return (%c)}
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %s = Neg(%x)
  return (%s)
)");
}

}  // namespace
}  // namespace exportguard::lowering
