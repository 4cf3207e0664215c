#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exportguard/common/errors.h"
#include "optimizer/optimized.h"

namespace exportguard::optimizer {
namespace {

// ------------------------------------------------------------------------------------------------ reshapes

TEST(Reshape, OfAReshapeIsOneWithAConstantThatCopies) {
  const std::string_view graph = R"(
    graph(%x: f32[b,s,64]):
      %n: i64[1] = Shape(%x) {start=0, end=1}
      %m: i64[1] = Shape(%x) {start=1, end=2}
      %four: i64[4] = Concat(%n, %m, %m, %m) {axis=0}
      %y: f32[b,s,4,16] = Reshape(%x, %four)
      %z: f32[b,s,8,8] = Reshape(%y, %four)
      return (%z))";
  EXPECT_EQ(optimized_nodes(graph), R"(  %z = Reshape(%x, %"constant.i64[0,0,8,8]")
  return (%z)
)");
}

TEST(Reshape, BackToWhereItCameFromIsNothing) {
  const std::string_view graph = R"(
    graph(%x: f32[b,s,64], %to: i64[4]):
      %y: f32[b,s,4,16] = Reshape(%x, %to)
      %z: f32[b,s,64] = Reshape(%y, %to)
      return (%z))";
  EXPECT_EQ(optimized_nodes(graph), "  return (%x)\n");
}

TEST(Reshape, StaysWhereASizeWouldHaveToBeInferredBesideOneThatMayBeZero) {
  const std::string_view graph = R"(
    graph(%x: f32[n,64], %b: i64[1], %s: i64[1]):
      %to: i64[3] = Concat(%b, %s, %s) {axis=0}
      %y: f32[b,s,64] = Reshape(%x, %to)
      return (%y))";
  EXPECT_EQ(optimized_nodes(graph), unchanged(graph));
}

TEST(Reshape, ToASizeOfZeroStays) {
  const std::string_view graph = R"(
    graph(%x: f32[b,0]):
      %b: i64[1] = Shape(%x) {start=0, end=1}
      %to: i64[2] = Concat(%"zero", %b) {axis=0}
      %y: f32[0,b] = Reshape(%x, %to) {allowzero=1}
      return (%y))";
  const std::string with_zero =
      std::string(graph).replace(std::string(graph).find("%x: f32[b,0]"), 12, "%x: f32[b,0], %zero: i64[1] = {0}");
  EXPECT_EQ(optimized_nodes(with_zero), unchanged(with_zero));
}

TEST(Unsqueeze, OfAnUnsqueezeIsOne) {
  const std::string_view graph = R"(
    graph(%x: f32[b,s], %one: i64[1] = {1}, %last: i64[1] = {-1}):
      %y: f32[b,1,s] = Unsqueeze(%x, %one)
      %z: f32[b,1,s,1] = Unsqueeze(%y, %last)
      return (%z))";
  EXPECT_EQ(optimized_nodes(graph), R"(  %z = Unsqueeze(%x, %"constant.i64[1,3]")
  return (%z)
)");
}

// ------------------------------------------------------------------------------------------------ transposes, casts

TEST(Transpose, TwoThatUndoEachOtherGo) {
  const std::string_view graph = R"(
    graph(%x: f32[a,b,c]):
      %y: f32[c,a,b] = Transpose(%x) {perm=[2, 0, 1]}
      %z: f32[a,b,c] = Transpose(%y) {perm=[1, 2, 0]}
      return (%z))";
  EXPECT_EQ(optimized_nodes(graph), "  return (%x)\n");
}

TEST(Transpose, OfAWeightIsAViewOfIt) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3], %w: f32[2,3] = {1, 2, 3, 4, 5, 6}):
      %t: f32[3,2] = Transpose(%w) {perm=[1, 0]}
      %y: f32[b,2] = MatMul(%x, %t)
      return (%y))";
  EXPECT_EQ(optimized_nodes(graph), R"(  %y = MatMul(%x, %w.transposed)
  return (%y)
)");
}

TEST(Cast, ThroughAWiderFloatIsNothing) {
  const std::string_view graph = R"(
    graph(%x: f16[n]):
      %y: f32[n] = Cast(%x) {to=1}
      %z: f16[n] = Cast(%y) {to=10}
      return (%z))";
  EXPECT_EQ(optimized_nodes(graph), "  return (%x)\n");
}

TEST(Cast, ThroughANarrowerFloatRoundsAndStays) {
  const std::string_view graph = R"(
    graph(%x: f32[n]):
      %y: f16[n] = Cast(%x) {to=10}
      %z: f32[n] = Cast(%y) {to=1}
      return (%z))";
  const Optimized result = optimized(graph);
  EXPECT_EQ(result.nodes, unchanged(graph));
  EXPECT_TRUE(declined(result.report, "cast_of_cast", "the first Cast rounds"));
}

TEST(Cast, ThroughABoolTestsForZeroAndStays) {
  const std::string_view graph = R"(
    graph(%x: i64[n]):
      %y: bool[n] = Cast(%x) {to=9}
      %z: i64[n] = Cast(%y) {to=7}
      return (%z))";
  EXPECT_EQ(optimized_nodes(graph), unchanged(graph));
}

// ------------------------------------------------------------------------------------------------ neutral operands

TEST(Neutral, OneDropsOutOfAProduct) {
  const std::string_view graph = R"(
    graph(%x: f32[n], %one: f32[] = {1}):
      %y: f32[n] = Mul(%one, %x)
      return (%y))";
  EXPECT_EQ(optimized_nodes(graph), "  return (%x)\n");
}

TEST(Neutral, AOneThatStretchesStays) {
  const std::string_view graph = R"(
    graph(%x: f32[n], %one: f32[1,1] = {1}):
      %y: f32[1,n] = Mul(%x, %one)
      return (%y))";
  const Optimized result = optimized(graph);
  EXPECT_EQ(result.nodes, unchanged(graph));
  EXPECT_TRUE(declined(result.report, "neutral_operand", "the neutral operand stretches the other one"));
}

TEST(Neutral, PlusZeroOfFloatsStaysBecauseItTurnsMinusZeroAround) {
  const std::string_view graph = R"(
    graph(%x: f32[n], %zero: f32[] = {0}):
      %y: f32[n] = Add(%x, %zero)
      return (%y))";
  EXPECT_EQ(optimized_nodes(graph), unchanged(graph));
}

TEST(Neutral, PlusZeroOfIntegersGoes) {
  const std::string_view graph = R"(
    graph(%x: i64[n], %zero: i64[] = {0}):
      %y: i64[n] = Add(%x, %zero)
      return (%y))";
  EXPECT_EQ(optimized_nodes(graph), "  return (%x)\n");
}

// ------------------------------------------------------------------------------------------------ indices

constexpr std::string_view kGrid = R"(
    graph(%x: bool[b,t], %k: i64[s], %zero: i64[] = {0}, %one: i64[] = {1}, %first: i64[1] = {0}, %mid: i64[2] = {1, 2}, %last: i64[1] = {3}, %lead: i64[2] = {0, 1}, %shape: i64[3]):
      %n: i64[1] = Shape(%x) {start=0, end=1}
      %m: i64[] = Squeeze(%n, %first)
      %r: i64[b] = Range(%zero, %m, %one)
      %p: i64[b,1,1] = Unsqueeze(%r, %mid)
      %q: i64[1,1,s] = Unsqueeze(%k, %lead)
      %pe: i64[b,1,s] = Expand(%p, %shape)
      %qe: i64[b,1,s] = Expand(%q, %shape)
      %pu: i64[b,1,s,1] = Unsqueeze(%pe, %last)
      %qu: i64[b,1,s,1] = Unsqueeze(%qe, %last)
      %i: i64[b,1,s,2] = Concat(%pu, %qu) {axis=3}
      %y: bool[b,1,s] = GatherND(%x, %i)
      return (%y))";

TEST(GatherND, OfAGridGathersAlongTheAxesThatAreNotWhole) {
  EXPECT_EQ(optimized_nodes(kGrid), R"(  %0 = Gather(%x, %k) {axis=1}
  %y = Unsqueeze(%0, %"constant.i64[1]")
  return (%y)
)");
}

TEST(GatherND, OfPairsThatGoTogetherStays) {
  std::string graph(kGrid);
  const std::string what = "%q: i64[1,1,s] = Unsqueeze(%k, %lead)";
  graph.replace(graph.find(what), what.size(), "%q: i64[s,1,1] = Unsqueeze(%k, %mid)");
  EXPECT_THAT(optimized_nodes(graph), testing::HasSubstr("GatherND"));
}

// ------------------------------------------------------------------------------------------------ sizes, constants

TEST(Sizes, ReadOffAnyTensorAreReadOffAnInputOnce) {
  const std::string_view graph = R"(
    graph(%x: f32[b,s]):
      %y: f32[b,s] = Exp(%x)
      %a: i64[1] = Shape(%x) {start=1, end=2}
      %c: i64[1] = Shape(%y) {start=1, end=2}
      %d: i64[2] = Concat(%a, %c) {axis=0}
      return (%y, %d))";
  EXPECT_EQ(optimized_nodes(graph), R"(  %y = Exp(%x)
  %a = Shape(%x) {start=1, end=2}
  %d = Concat(%a, %a) {axis=0}
  return (%y, %d)
)");
}

TEST(Sizes, ThatTheTypesTellAreConstants) {
  const std::string_view graph = R"(
    graph(%x: f32[b,4], %one: i64[1] = {1}):
      %all: i64[2] = Shape(%x)
      %four: i64[1] = Gather(%all, %one)
      %five: i64[1] = Add(%four, %one)
      return (%five))";
  EXPECT_EQ(optimized_nodes(graph), R"(  return (%"constant.i64[5]")
)");
}

TEST(Constants, OfFloatsAreComputed) {
  const std::string_view graph = R"(
    graph(%x: f32[2], %w: f32[2] = {1, 2}, %one: f32[] = {1}):
      %v: f32[2] = Add(%w, %one)
      %y: f32[2] = Mul(%x, %v)
      return (%y))";
  EXPECT_EQ(optimized_nodes(graph), R"(  %y = Mul(%x, %v)
  return (%y)
)");
}

// ------------------------------------------------------------------------------------------------ the whole

TEST(CommonSubexpressions, AreOneInNestedGraphsToo) {
  const std::string_view graph = R"(
    graph(%x: f32[n], %p: bool[]):
      %a: f32[n] = Exp(%x)
      %y: f32[n] = If(%p) {then_branch=graph():
          %b: f32[n] = Exp(%x)
          %c: f32[n] = Neg(%b)
          return (%c), else_branch=graph():
          return (%a)}
      return (%y))";
  EXPECT_EQ(optimized_nodes(graph), R"(  %a = Exp(%x)
  %y = If(%p) {then_branch=graph():
      %c = Neg(%a)
      return (%c), else_branch=graph():
      return (%a)}
  return (%y)
)");
}

TEST(CommonSubexpressions, RandomNumbersAreDrawnAsOftenAsBefore) {
  const std::string_view graph = R"(
    graph(%x: f32[n]):
      %a: f32[n] = RandomNormalLike(%x)
      %b: f32[n] = RandomNormalLike(%x)
      %c: f32[n] = Sub(%a, %b)
      return (%c))";
  EXPECT_EQ(optimized_nodes(graph), unchanged(graph));
}

std::size_t calls_left(std::string_view body, std::string_view function) {
  ir::Model model = ir::parse_model(fmt::format(R"(opset 25
opset own 1
graph(%x: f32[n]):
  %a: f32[n] = own::{1}(%x)
  %b: f32[n] = own::{1}(%x)
  %c: f32[n] = Sub(%a, %b)
  return (%c)
function own::noise(%v) opsets(25, own 1):
  %r = {0}(%v)
  return (%r)
function own::outer(%u) opsets(25, own 1):
  %s = own::noise(%u)
  return (%s)
)",
                                                body, function));
  optimize(model, {.only = {"common_subexpressions"}});
  std::size_t calls = 0;
  for (const ir::Node& node : *model.graph) calls += node.domain() == "own" ? 1 : 0;
  return calls;
}

TEST(CommonSubexpressions, FunctionsThatDrawRandomNumbersAreCalledAsOftenAsBefore) {
  EXPECT_EQ(calls_left("RandomNormalLike", "outer"), 2U);
  EXPECT_EQ(calls_left("Exp", "outer"), 1U);
}

TEST(CommonSubexpressions, OperatorsThatNobodyKnowsAreRunAsOftenAsBefore) {
  EXPECT_EQ(calls_left("Exp", "stranger"), 2U);
}

TEST(CommonSubexpressions, AttributesTellNodesApart) {
  const std::string_view graph = R"(
    graph(%x: f32[n,n]):
      %a: f32[n,n] = Softmax(%x) {axis=0}
      %b: f32[n,n] = Softmax(%x) {axis=1}
      %c: f32[n,n] = Sub(%a, %b)
      return (%c))";
  EXPECT_EQ(optimized_nodes(graph), unchanged(graph));
}

TEST(Optimizing, AnUnknownPatternIsRefusedByName) {
  EXPECT_THAT([] { optimized("graph(%x: f32[n]):\n  return (%x)\n", {"fuse_all"}); },
              testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("no pattern or pass is named 'fuse_all'")));
}

TEST(Optimizing, TellsWhatWasDone) {
  const Report report = optimized(R"(
    graph(%x: f32[n]):
      %a: f32[n] = Identity(%x)
      %b: f32[n] = Exp(%a)
      return (%b))")
                            .report;
  EXPECT_EQ(report.nodes_before, 2U);
  EXPECT_EQ(report.nodes_after, 1U);
  const auto one = std::ranges::find(report.patterns, "identity", &PatternReport::name);
  ASSERT_NE(one, report.patterns.end());
  EXPECT_EQ(one->applied, 1U);
}

}  // namespace
}  // namespace exportguard::optimizer
