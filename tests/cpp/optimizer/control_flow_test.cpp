#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "optimizer/optimized.h"

namespace exportguard::optimizer {
namespace {

constexpr std::string_view kIf = R"(
    graph(%x: f32[n], %p: bool[] = {true}):
      %y: f32[n] = If(%p) {then_branch=graph():
          %a: f32[n] = Exp(%x)
          %b: f32[n] = Neg(%a)
          return (%b), else_branch=graph():
          %c: f32[n] = Abs(%x)
          return (%c)}
      return (%y))";

TEST(If, WithAKnownConditionIsTheBranchThatIsTaken) {
  EXPECT_EQ(optimized_nodes(kIf), "  %a = Exp(%x)\n  %b = Neg(%a)\n  return (%b)\n");
  EXPECT_EQ(optimized_nodes(replaced(kIf, "{true}", "{false}")), "  %c = Abs(%x)\n  return (%c)\n");
}

TEST(If, WithAConditionOfTheRunStays) {
  const Optimized result = optimized(replaced(kIf, "%p: bool[] = {true}", "%p: bool[]"));
  EXPECT_THAT(result.nodes, testing::HasSubstr("If(%p)"));
  EXPECT_TRUE(declined(result.report, "if_known", "the condition is not known"));
}

constexpr std::string_view kLoop = R"(
    graph(%x: f32[n], %w: f32[n], %turns: i64[], %go: bool[]):
      %y: f32[n] = Loop(%turns, %go, %x) {body=graph(%i: i64[], %c: bool[], %v: f32[n]):
          %e: f32[n] = Exp(%w)
          %s: f32[n] = Add(%v, %e)
          %d: bool[] = Identity(%c)
          return (%d, %s)}
      return (%y))";

TEST(Loop, ComputesWhatDoesNotChangeOnce) {
  EXPECT_THAT(optimized_nodes(kLoop), testing::StartsWith("  %e = Exp(%w)\n  %y = Loop(%turns, %go, %x)"));
}

TEST(Loop, KeepsWhatMayFail) {
  const std::string graph =
      replaced(replaced(kLoop, "%w: f32[n]", "%w: f32[m], %k: i64[n]"), "Exp(%w)", "Gather(%w, %k)");
  const Optimized result = optimized(graph);
  EXPECT_THAT(result.nodes, testing::StartsWith("  %y = Loop("));
}

TEST(Loop, KeepsWhatItsTurnsChange) {
  const Optimized result = optimized(replaced(kLoop, "Exp(%w)", "Exp(%v)"));
  EXPECT_THAT(result.nodes, testing::StartsWith("  %y = Loop("));
  EXPECT_TRUE(declined(result.report, "loop_invariant", "it reads what a turn has"));
}

}  // namespace
}  // namespace exportguard::optimizer
