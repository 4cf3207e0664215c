#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "optimizer/optimized.h"

namespace exportguard::optimizer {
namespace {

// ------------------------------------------------------------------------------------------------ norms

constexpr std::string_view kRms = R"(
    graph(%x: f32[b,s,4], %w: f32[4] = {1, 2, 3, 4}, %eps: f32[] = {0.5}, %axis: i64[1] = {2}):
      %p: f32[b,s,4] = Mul(%x, %x)
      %m: f32[b,s,1] = ReduceMean(%p, %axis) {keepdims=1}
      %e: f32[b,s,1] = Add(%m, %eps)
      %r: f32[b,s,1] = Sqrt(%e)
      %i: f32[b,s,1] = Reciprocal(%r)
      %n: f32[b,s,4] = Mul(%x, %i)
      %y: f32[b,s,4] = Mul(%w, %n)
      return (%y))";

TEST(RmsNorm, WithItsWeightIsOneNode) {
  EXPECT_EQ(optimized_nodes(kRms), R"(  %y = RMSNormalization(%x, %w) {axis=-1, epsilon=0.5}
  return (%y)
)");
}

TEST(RmsNorm, CarriesTheSourcesOfAllThatItReplaced) {
  ir::Model model;
  model.graph = ir::parse_graph(kRms);
  model.opsets[""] = 25;
  int line = 0;
  for (ir::Node& node : *model.graph)
    node.set_source(ir::intern({"aten." + node.op(), "norm", "Norm", "model.py", ++line}));
  optimize(model);
  const ir::Source* source = model.graph->first()->source();
  ASSERT_NE(source, nullptr);
  EXPECT_THAT(source->target, testing::HasSubstr("aten.ReduceMean"));
  EXPECT_EQ(source->module, "norm");
}

TEST(RmsNorm, BeforeOpset23Stays) {
  EXPECT_THAT(optimized_nodes(kRms, {}, 22), testing::Not(testing::HasSubstr("RMS")));
}

TEST(RmsNorm, OverAnotherAxisStays) {
  const std::string graph = replaced(kRms, "%axis: i64[1] = {2}", "%axis: i64[1] = {1}");
  EXPECT_THAT(optimized_nodes(graph), testing::Not(testing::HasSubstr("RMS")));
}

TEST(RmsNorm, OfAnotherTensorsSquaresStays) {
  const std::string graph = replaced(kRms, "Mul(%x, %x)", "Mul(%x, %w)");
  const Optimized result = optimized(graph);
  EXPECT_THAT(result.nodes, testing::Not(testing::HasSubstr("RMS")));
  EXPECT_TRUE(declined(result.report, "rms_norm", "there is no mean of squares under the root"));
}

TEST(RmsNorm, OfFloat16ThatIsComputedInFloat32TakesTheFloat16) {
  const std::string_view graph = R"(
    graph(%h: f16[b,4], %w: f16[4] = {1, 2, 3, 4}, %eps: f32[] = {0.5}, %axis: i64[1] = {-1}):
      %x: f32[b,4] = Cast(%h) {to=1}
      %p: f32[b,4] = Mul(%x, %x)
      %m: f32[b,1] = ReduceMean(%p, %axis) {keepdims=1}
      %e: f32[b,1] = Add(%m, %eps)
      %r: f32[b,1] = Sqrt(%e)
      %n: f32[b,4] = Div(%x, %r)
      %c: f16[b,4] = Cast(%n) {to=10}
      %y: f16[b,4] = Mul(%c, %w)
      return (%y))";
  EXPECT_EQ(optimized_nodes(graph), R"(  %y = RMSNormalization(%h, %w) {axis=-1, epsilon=0.5}
  return (%y)
)");
}

// ------------------------------------------------------------------------------------------------ rotary embedding

constexpr std::string_view kRotary = R"(
    graph(%x: f32[b,s,2,8], %c: f32[b,s,4], %d: f32[b,s,4], %one: i64[1] = {1}, %last: i64[1] = {3}, %zero: i64[1] = {0}, %half: i64[1] = {4}, %end: i64[1] = {9223372036854775807}):
      %q: f32[b,2,s,8] = Transpose(%x) {perm=[0, 2, 1, 3]}
      %cc: f32[b,s,8] = Concat(%c, %c) {axis=2}
      %dd: f32[b,s,8] = Concat(%d, %d) {axis=-1}
      %cos: f32[b,1,s,8] = Unsqueeze(%cc, %one)
      %sin: f32[b,1,s,8] = Unsqueeze(%dd, %one)
      %a: f32[b,2,s,8] = Mul(%q, %cos)
      %lo: f32[b,2,s,4] = Slice(%q, %zero, %half, %last, %one)
      %hi: f32[b,2,s,4] = Slice(%q, %half, %end, %last, %one)
      %neg: f32[b,2,s,4] = Neg(%hi)
      %turned: f32[b,2,s,8] = Concat(%neg, %lo) {axis=3}
      %t: f32[b,2,s,8] = Mul(%turned, %sin)
      %y: f32[b,2,s,8] = Add(%a, %t)
      return (%y))";

TEST(Rotary, OfHalvesIsOneNodeBehindTheProjection) {
  EXPECT_EQ(optimized_nodes(kRotary), R"(  %0 = Reshape(%x, %"constant.i64[0,0,16]")
  %1 = RotaryEmbedding(%0, %c, %d) {num_heads=2, interleaved=0, rotary_embedding_dim=0}
  %2 = Reshape(%1, %"constant.i64[0,0,2,8]")
  %y = Transpose(%2) {perm=[0, 2, 1, 3]}
  return (%y)
)");
}

TEST(Rotary, TurnedTheOtherWayRoundStays) {
  const std::string graph = replaced(kRotary, "Concat(%neg, %lo)", "Concat(%lo, %neg)");
  EXPECT_THAT(optimized_nodes(graph), testing::Not(testing::HasSubstr("Rotary")));
}

TEST(Rotary, WithTablesThatHaveTheSequenceInFrontGivesThemTheirAxes) {
  std::string graph(kRotary);
  for (const std::string_view name : {"c", "d"}) {
    const std::string of(name);
    graph = replaced(graph, "%" + of + ": f32[b,s,4]", "%" + of + ": f32[s,1,4]");
    graph = replaced(graph, "%" + of + of + ": f32[b,s,8]", "%" + of + of + ": f32[s,1,8]");
  }
  graph = replaced(replaced(graph, "%cos: f32[b,1,s,8] = Unsqueeze(%cc, %one)", "%cos: f32[s,1,8] = Identity(%cc)"),
                   "%sin: f32[b,1,s,8] = Unsqueeze(%dd, %one)", "%sin: f32[s,1,8] = Identity(%dd)");
  std::string behind =
      replaced(graph, "%q: f32[b,2,s,8] = Transpose(%x) {perm=[0, 2, 1, 3]}", "%q: f32[b,s,2,8] = Identity(%x)");
  for (std::size_t at = behind.find("b,2,s,"); at != std::string::npos; at = behind.find("b,2,s,"))
    behind.replace(at, 6, "b,s,2,");
  const std::string nodes = optimized_nodes(behind);
  EXPECT_THAT(nodes, testing::HasSubstr("Squeeze(%c, %\"constant.i64[1]\")"));
  EXPECT_THAT(nodes, testing::HasSubstr("Unsqueeze(%0, %\"constant.i64[0]\")"));
  EXPECT_THAT(nodes, testing::HasSubstr("= RotaryEmbedding("));
}

constexpr std::string_view kPairs = R"(
    graph(%x: f32[b,2,s,8], %c: f32[b,s,4], %d: f32[b,s,4], %inner: i64[2] = {1, 4}, %last: i64[1] = {3}, %four: i64[1] = {4}, %zero: i64[1] = {0}, %one: i64[1] = {1}, %two: i64[1] = {2}, %end: i64[1] = {9223372036854775807}, %twice: i64[5] = {1, 1, 1, 1, 2}, %table: i64[4], %whole: i64[4]):
      %c5: f32[b,1,s,4,1] = Unsqueeze(%c, %inner)
      %d5: f32[b,1,s,4,1] = Unsqueeze(%d, %inner)
      %cc: f32[b,1,s,4,2] = Expand(%c5, %twice)
      %dd: f32[b,1,s,4,2] = Expand(%d5, %twice)
      %cos: f32[b,1,s,8] = Reshape(%cc, %table)
      %sin: f32[b,1,s,8] = Reshape(%dd, %table)
      %even: f32[b,2,s,4] = Slice(%x, %zero, %end, %last, %two)
      %odd: f32[b,2,s,4] = Slice(%x, %one, %end, %last, %two)
      %neg: f32[b,2,s,4] = Neg(%odd)
      %n: f32[b,2,s,4,1] = Unsqueeze(%neg, %four)
      %e: f32[b,2,s,4,1] = Unsqueeze(%even, %four)
      %pairs: f32[b,2,s,4,2] = Concat(%n, %e) {axis=-1}
      %turned: f32[b,2,s,8] = Reshape(%pairs, %whole)
      %a: f32[b,2,s,8] = Mul(%x, %cos)
      %t: f32[b,2,s,8] = Mul(%turned, %sin)
      %y: f32[b,2,s,8] = Add(%a, %t)
      return (%y))";

TEST(Rotary, OfNeighboursIsOneNode) {
  EXPECT_EQ(optimized_nodes(kPairs), "  %y = RotaryEmbedding(%x, %c, %d) {interleaved=1}\n  return (%y)\n");
}

TEST(Rotary, OfNeighboursTurnedTheOtherWayRoundStays) {
  EXPECT_THAT(optimized_nodes(replaced(kPairs, "Concat(%n, %e)", "Concat(%e, %n)")),
              testing::Not(testing::HasSubstr("Rotary")));
  EXPECT_THAT(optimized_nodes(replaced(kPairs, "Neg(%odd)", "Neg(%even)")), testing::Not(testing::HasSubstr("Rotary")));
}

TEST(Rotary, WithATableWhoseHalvesDifferStays) {
  const std::string graph = replaced(kRotary, "Concat(%c, %c)", "Concat(%c, %d)");
  EXPECT_THAT(optimized_nodes(graph), testing::Not(testing::HasSubstr("Rotary")));
}

TEST(Rotary, OfUnequalPartsStays) {
  const std::string graph = replaced(kRotary, "%half: i64[1] = {4}", "%half: i64[1] = {3}");
  EXPECT_THAT(optimized_nodes(graph), testing::Not(testing::HasSubstr("Rotary")));
}

// ------------------------------------------------------------------------------------------------ attention

constexpr std::string_view kAttention = R"(
    graph(%q: f32[b,s,4,8], %k: f32[b,s,2,8], %v: f32[b,s,2,8], %m: bool[b,1,s,p + s], %pk: f32[b,2,p,8], %pv: f32[b,2,p,8], %two: i64[1] = {2}, %five: i64[5], %four: i64[4]):
      %qt: f32[b,4,s,8] = Transpose(%q) {perm=[0, 2, 1, 3]}
      %kt: f32[b,2,s,8] = Transpose(%k) {perm=[0, 2, 1, 3]}
      %vt: f32[b,2,s,8] = Transpose(%v) {perm=[0, 2, 1, 3]}
      %kc: f32[b,2,p + s,8] = Concat(%pk, %kt) {axis=2}
      %vc: f32[b,2,p + s,8] = Concat(%pv, %vt) {axis=2}
      %ku: f32[b,2,1,p + s,8] = Unsqueeze(%kc, %two)
      %ke: f32[b,2,2,p + s,8] = Expand(%ku, %five)
      %kr: f32[b,4,p + s,8] = Reshape(%ke, %four)
      %vu: f32[b,2,1,p + s,8] = Unsqueeze(%vc, %two)
      %ve: f32[b,2,2,p + s,8] = Expand(%vu, %five)
      %vr: f32[b,4,p + s,8] = Reshape(%ve, %four)
      %y: f32[b,4,s,8] = Attention(%qt, %kr, %vr, %m) {scale=0.5}
      %t: f32[b,s,4,8] = Transpose(%y) {perm=[0, 2, 1, 3]}
      return (%t, %kc as key, %vc as value))";

TEST(Attention, TakesTheCacheTheSharedHeadsAndThreeAxes) {
  EXPECT_EQ(optimized_nodes(kAttention), R"(  %0 = Reshape(%q, %"constant.i64[0,0,32]")
  %1 = Reshape(%k, %"constant.i64[0,0,16]")
  %2 = Reshape(%v, %"constant.i64[0,0,16]")
  %3, %kc, %vc = Attention(%0, %1, %2, %m, %pk, %pv) {scale=0.5, q_num_heads=4, kv_num_heads=2}
  %t = Reshape(%3, %"constant.i64[0,0,4,8]")
  return (%t, %kc as key, %vc as value)
)");
}

TEST(Attention, WithoutANewKeyForEachQueryKeepsTheConcat) {
  std::string graph = replaced(kAttention, "%k: f32[b,s,2,8], %v: f32[b,s,2,8]", "%k: f32[b,t,2,8], %v: f32[b,t,2,8]");
  graph = replaced(graph, "%kt: f32[b,2,s,8]", "%kt: f32[b,2,t,8]");
  graph = replaced(graph, "%vt: f32[b,2,s,8]", "%vt: f32[b,2,t,8]");
  const Optimized result = optimized(graph);
  EXPECT_THAT(result.nodes, testing::HasSubstr("Concat(%pk"));
  EXPECT_TRUE(declined(result.report, "attention_cache", "there may be no new key"));
}

TEST(Attention, ThatIsCausalKeepsTheConcatBecauseTheTriangleWouldMove) {
  const std::string graph = replaced(replaced(kAttention, "{scale=0.5}", "{scale=0.5, is_causal=1}"), ", %m)", ")");
  const Optimized result = optimized(graph);
  EXPECT_THAT(result.nodes, testing::HasSubstr("Concat(%pk"));
  EXPECT_TRUE(declined(result.report, "attention_cache", "the triangle would move with the cache"));
}

TEST(Attention, KeepsACacheThatIsReadBeforeIt) {
  const std::string graph = replaced(kAttention, "%ku: f32", "%early: f32[b,2,p + s,8] = Exp(%kc)\n      %ku: f32");
  const std::string read = replaced(graph, "%kc as key", "%early as key");
  const Optimized result = optimized(read);
  EXPECT_THAT(result.nodes, testing::HasSubstr("Concat(%pk"));
  EXPECT_TRUE(declined(result.report, "attention_cache", "the new cache is read before"));
}

TEST(Attention, OfHeadsRepeatedInAnotherOrderKeepsThem) {
  const std::string graph = replaced(replaced(kAttention, "%ku: f32[b,2,1,p + s,8] = Unsqueeze(%kc, %two)",
                                              "%ku: f32[b,1,2,p + s,8] = Unsqueeze(%kc, %one)"),
                                     "%two: i64[1] = {2}", "%two: i64[1] = {2}, %one: i64[1] = {1}");
  EXPECT_THAT(optimized_nodes(graph), testing::HasSubstr("Expand(%ku"));
}

}  // namespace
}  // namespace exportguard::optimizer
