#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "optimizer/optimized.h"

namespace exportguard::optimizer {
namespace {

constexpr std::string_view kEager = R"(
    graph(%q: f32[b,2,s,8], %k: f32[b,2,p + s,8], %v: f32[b,2,p + s,8], %seen: bool[b,1,s,p + s], %low: f32[] = {-3.4028234663852886e+38}, %zero: f32[] = {0}, %half: f32[] = {0.5}):
      %t: f32[b,2,8,p + s] = Transpose(%k) {perm=[0, 1, 3, 2]}
      %m: f32[b,2,s,p + s] = MatMul(%q, %t)
      %n: f32[b,2,s,p + s] = Mul(%m, %half)
      %mask: f32[b,1,s,p + s] = Where(%seen, %zero, %low)
      %a: f32[b,2,s,p + s] = Add(%n, %mask)
      %w: f32[b,2,s,p + s] = Softmax(%a) {axis=-1}
      %y: f32[b,2,s,8] = MatMul(%w, %v)
      return (%y))";

TEST(EagerAttention, IsOneNode) {
  const std::string nodes = optimized_nodes(kEager);
  EXPECT_THAT(nodes, testing::HasSubstr("= Attention(%q, %k, %v, "));
  EXPECT_THAT(nodes, testing::HasSubstr("scale=0.5"));
  EXPECT_THAT(nodes, testing::HasSubstr("%constant.f32.above_lowest"));
  EXPECT_THAT(nodes, testing::Not(testing::HasSubstr("Softmax")));
}

TEST(EagerAttention, WithoutAMaskIsOneNode) {
  const std::string graph = replaced(kEager, "Softmax(%a)", "Softmax(%n)");
  EXPECT_EQ(optimized_nodes(graph), "  %y = Attention(%q, %k, %v) {scale=0.5}\n  return (%y)\n");
}

TEST(EagerAttention, WithASoftcapIsOneNode) {
  const std::string graph = replaced(replaced(kEager, "Add(%n, %mask)", "Add(%cap, %mask)"), "%mask: f32",
                                     R"(%d: f32[b,2,s,p + s] = Div(%n, %four)
      %h: f32[b,2,s,p + s] = Tanh(%d)
      %cap: f32[b,2,s,p + s] = Mul(%four, %h)
      %mask: f32)");
  const std::string with = replaced(graph, "%half: f32[] = {0.5}", "%half: f32[] = {0.5}, %four: f32[] = {4}");
  EXPECT_THAT(optimized_nodes(with), testing::HasSubstr("{scale=0.5, softcap=4.0}"));
}

TEST(EagerAttention, WithChosenScoresTakesAMaskOfNumbers) {
  const std::string graph = replaced(kEager, "Softmax(%a)", "Softmax(%c)");
  const std::string chosen = replaced(graph, "%w: f32", "%c: f32[b,2,s,p + s] = Where(%seen, %n, %low)\n      %w: f32");
  EXPECT_THAT(optimized_nodes(chosen), testing::HasSubstr("Where(%seen, %constant.f32.0, %constant.f32.above_lowest)"));
}

/// What makes NaN of the rows of a mask that are nothing but minus infinity.
testing::Matcher<const std::string&> has_nan_for_hidden() {
  return testing::AllOf(testing::HasSubstr("= ReduceMax("), testing::HasSubstr("= Attention(%q, %k, %v, "),
                        testing::Not(testing::HasSubstr("Softmax")));
}

TEST(EagerAttention, WhoseMaskMayBeMinusInfinityGivesNaNWhereEveryKeyIsHidden) {
  const std::string graph = replaced(kEager, "{-3.4028234663852886e+38}", "{-inf}");
  EXPECT_THAT(optimized_nodes(graph), has_nan_for_hidden());
}

TEST(EagerAttention, WithChosenScoresMayHaveMinusInfinity) {
  const std::string graph = replaced(kEager, "Softmax(%a)", "Softmax(%c)");
  const std::string chosen = replaced(graph, "%w: f32", "%c: f32[b,2,s,p + s] = Where(%seen, %n, %low)\n      %w: f32");
  const std::string nodes = optimized_nodes(replaced(chosen, "{-3.4028234663852886e+38}", "{-inf}"));
  EXPECT_THAT(nodes, has_nan_for_hidden());
  EXPECT_THAT(nodes, testing::HasSubstr("Where(%seen, %constant.f32.0, "));
}

TEST(EagerAttention, WhoseTwoMasksTogetherMayBeMinusInfinityAddsThemFirst) {
  const std::string graph = replaced(kEager, "%w: f32", "%e: f32[b,2,s,p + s] = Add(%a, %mask)\n      %w: f32");
  const std::string nodes = optimized_nodes(replaced(graph, "Softmax(%a)", "Softmax(%e)"));
  EXPECT_THAT(nodes, has_nan_for_hidden());
  EXPECT_THAT(nodes, testing::HasSubstr("Add(%mask, %mask)"));
}

TEST(EagerAttention, WhoseMaskIsAnInputIsOneNode) {
  const std::string graph = replaced(kEager, "Add(%n, %mask)", "Add(%n, %bias)");
  const std::string with =
      replaced(graph, "%seen: bool[b,1,s,p + s]", "%seen: bool[b,1,s,p + s], %bias: f32[b,1,s,p + s]");
  EXPECT_THAT(optimized_nodes(with), has_nan_for_hidden());
}

TEST(EagerAttention, StaysIfAMaskForEachHeadMayBeMinusInfinity) {
  const std::string graph = replaced(kEager, "Add(%n, %mask)", "Add(%n, %bias)");
  const Optimized result =
      optimized(replaced(graph, "%seen: bool[b,1,s,p + s]", "%seen: bool[b,1,s,p + s], %bias: f32[b,2,s,p + s]"));
  EXPECT_THAT(result.nodes, testing::HasSubstr("Softmax"));
  EXPECT_TRUE(declined(result.report, "attention_softmax",
                       "a mask for each head may hide every key from a query with minus infinity"));
}

TEST(EagerAttention, OfAFiniteMaskForEachHeadLooksAtTheOtherOneAlone) {
  const std::string graph = replaced(kEager, "Add(%n, %mask)", "Add(%m2, %mask)");
  const std::string with = replaced(replaced(graph, "%mask: f32", R"(%m2: f32[b,2,s,p + s] = Add(%n, %slope)
      %mask: f32)"),
                                    "%zero: f32[] = {0}", "%zero: f32[] = {0}, %slope: f32[2,1,1] = {0.5, 0.25}");
  const std::string nodes = optimized_nodes(replaced(with, "{-3.4028234663852886e+38}", "{-inf}"));
  EXPECT_THAT(nodes, has_nan_for_hidden());
  EXPECT_THAT(nodes, testing::ContainsRegex("ReduceMax\\(%[^,]*, "));
}

TEST(EagerAttention, StaysIfWhatLiftsMinusInfinityIsAroundIt) {
  const std::string graph = replaced(kEager, "Softmax(%a)", "Softmax(%f)");
  const std::string lifted =
      replaced(replaced(graph, "%w: f32", "%f: f32[b,2,s,p + s] = Max(%a, %floor)\n      %w: f32"),
               "{-3.4028234663852886e+38}", "{-inf}, %floor: f32[] = {-3.4028234663852886e+38}");
  EXPECT_THAT(optimized_nodes(lifted), testing::HasSubstr("Softmax"));
}

TEST(EagerAttention, OfOneHeadHasThreeAxes) {
  const std::string_view graph = R"(
    graph(%q: f32[b,s,8], %k: f32[b,s,8], %v: f32[b,s,8], %x: f32[b,s,8], %seen: bool[b,s,s], %low: f32[] = {-inf}):
      %key: f32[b,s,8] = Mul(%k, %x)
      %t: f32[b,8,s] = Transpose(%key) {perm=[0, 2, 1]}
      %m: f32[b,s,s] = MatMul(%q, %t)
      %a: f32[b,s,s] = Where(%seen, %m, %low)
      %w: f32[b,s,s] = Softmax(%a) {axis=-1}
      %y: f32[b,s,8] = MatMul(%w, %v)
      return (%y))";
  const std::string nodes = optimized_nodes(graph);
  EXPECT_THAT(nodes, testing::HasSubstr("= Attention(%q, %key, %v, "));
  EXPECT_THAT(nodes, testing::HasSubstr("q_num_heads=1, kv_num_heads=1"));
  EXPECT_THAT(nodes, testing::HasSubstr("= Unsqueeze("));
}

TEST(EagerAttention, TakesAFactorThatIsTheSameForAllKeysToTheQueries) {
  const std::string graph =
      replaced(kEager, "Mul(%m, %half)", "Mul(%m, %half)\n      %g: f32[b,2,s,p + s] = Mul(%n, %x)");
  const std::string with = replaced(replaced(graph, "Add(%n, %mask)", "Add(%g, %mask)"), "%seen: bool[b,1,s,p + s]",
                                    "%seen: bool[b,1,s,p + s], %x: f32[2,1,1]");
  EXPECT_THAT(optimized_nodes(with), testing::HasSubstr("= Mul(%q, %x)"));
}

TEST(EagerAttention, OfOneHeadOfKeysForAllQueriesRepeatsNothing) {
  std::string graph(kEager);
  for (const std::string_view key : {"%k: f32[b,2", "%v: f32[b,2"})
    graph = replaced(graph, key, std::string(key.substr(0, key.size() - 1)) + "1");
  graph = replaced(graph, "%t: f32[b,2", "%t: f32[b,1");
  EXPECT_THAT(optimized_nodes(graph), testing::HasSubstr("= Attention(%q, %k, %v, "));
}

TEST(EagerAttention, StaysIfTheWeightsAreReadAsWell) {
  const Optimized result = optimized(replaced(kEager, "return (%y)", "return (%y, %w)"));
  EXPECT_THAT(result.nodes, testing::HasSubstr("Softmax"));
}

TEST(EagerAttention, OverAnotherAxisStays) {
  EXPECT_THAT(optimized_nodes(replaced(kEager, "{axis=-1}", "{axis=2}")), testing::HasSubstr("Softmax"));
}

TEST(EagerAttention, InFloat64Stays) {
  std::string graph(kEager);
  for (std::size_t at = graph.find("f32"); at != std::string::npos; at = graph.find("f32", at))
    graph.replace(at, 3, "f64");
  EXPECT_THAT(optimized_nodes(graph), testing::HasSubstr("Softmax"));
}

TEST(EagerAttention, OfKeysThatMayBeNoneStays) {
  const std::string graph = replaced(replaced(kEager, "%k: f32[b,2,p + s,8]", "%k: f32[b,2,n,8]"),
                                     "%v: f32[b,2,p + s,8]", "%v: f32[b,2,n,8]");
  std::string any = graph;
  for (std::size_t at = any.find("p + s"); at != std::string::npos; at = any.find("p + s")) any.replace(at, 5, "n");
  const Optimized result = optimized(any);
  EXPECT_THAT(result.nodes, testing::HasSubstr("Softmax"));
  EXPECT_TRUE(declined(result.report, "attention_softmax", "there may be no key"));
}

// ------------------------------------------------------------------------------------------------ what is around it

TEST(Attention, ThatHidesNothingNeedsNoMask) {
  const std::string_view graph = R"(
    graph(%q: f32[b,2,4,8], %to: i64[4], %zero: i64[] = {0}, %row: i64[4,1] = {0, 1, 2, 3}):
      %seen: bool[4,1] = GreaterOrEqual(%row, %zero)
      %mask: bool[b,1,4,4] = Expand(%seen, %to)
      %y: f32[b,2,4,8] = Attention(%q, %q, %q, %mask) {scale=0.5}
      return (%y))";
  EXPECT_EQ(optimized_nodes(graph), "  %y = Attention(%q, %q, %q) {scale=0.5}\n  return (%y)\n");
}

TEST(Attention, ThatHidesAKeyKeepsItsMask) {
  const std::string_view graph = R"(
    graph(%q: f32[b,2,4,8], %to: i64[4], %one: i64[] = {1}, %row: i64[4,1] = {0, 1, 2, 3}):
      %seen: bool[4,1] = GreaterOrEqual(%row, %one)
      %mask: bool[b,1,4,4] = Expand(%seen, %to)
      %y: f32[b,2,4,8] = Attention(%q, %q, %q, %mask) {scale=0.5}
      return (%y))";
  const Optimized result = optimized(graph);
  EXPECT_THAT(result.nodes, testing::HasSubstr("Attention(%q, %q, %q, %mask)"));
  EXPECT_TRUE(declined(result.report, "attention_open_mask", "the mask may hide a key"));
}

constexpr std::string_view kScaledQuery = R"(
    graph(%q: f32[b,2,s,8], %k: f32[b,2,s,8], %c: f32[] = {0.25}):
      %z: f32[b,2,s,8] = Mul(%q, %c)
      %y: f32[b,2,s,8] = Attention(%z, %k, %k) {scale=2.0}
      return (%y))";

TEST(Attention, TakesTheFactorOfItsQueries) {
  EXPECT_EQ(optimized_nodes(kScaledQuery), "  %y = Attention(%q, %k, %k) {scale=0.5}\n  return (%y)\n");
}

TEST(Attention, KeepsANegativeFactorWhereItIs) {
  const std::string graph = replaced(kScaledQuery, "{0.25}", "{-0.25}");
  const Optimized result = optimized(graph);
  EXPECT_THAT(result.nodes, testing::HasSubstr("Mul(%q, %c)"));
  EXPECT_TRUE(declined(result.report, "attention_scaled_query", "the queries are not scaled"));
}

}  // namespace
}  // namespace exportguard::optimizer
