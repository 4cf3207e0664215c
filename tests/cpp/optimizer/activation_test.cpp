#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "optimizer/optimized.h"

namespace exportguard::optimizer {
namespace {

constexpr std::string_view kErf = R"(
    graph(%x: f32[n], %root: f32[] = {1.4142135623730951}, %one: f32[] = {1}, %half: f32[] = {0.5}):
      %d: f32[n] = Div(%x, %root)
      %e: f32[n] = Erf(%d)
      %a: f32[n] = Add(%e, %one)
      %m: f32[n] = Mul(%x, %a)
      %y: f32[n] = Mul(%half, %m)
      return (%y))";

TEST(Gelu, OfErfInAnyOrderIsOneNode) {
  const std::string expected = "  %y = Gelu(%x) {approximate=\"none\"}\n  return (%y)\n";
  EXPECT_EQ(optimized_nodes(kErf), expected);
  const std::string other = replaced(replaced(kErf, "Mul(%x, %a)", "Mul(%half, %x)"), "Mul(%half, %m)", "Mul(%m, %a)");
  EXPECT_EQ(optimized_nodes(other), expected);
}

TEST(Gelu, OfAProductTakesTheProductAsItIs) {
  const std::string graph = replaced(replaced(kErf, "graph(%x: f32[n]", "graph(%u: f32[n]"), "%d: f32[n]",
                                     "%x: f32[n] = Mul(%u, %u)\n      %d: f32[n]");
  EXPECT_THAT(optimized_nodes(graph), testing::HasSubstr("%y = Gelu(%x)"));
}

TEST(Gelu, WithAnotherNumberStays) {
  for (const auto& [what, by] :
       {std::pair("{1.4142135623730951}", "{1.5}"), std::pair("{0.5}", "{0.25}"), std::pair("{1}", "{2}")}) {
    EXPECT_THAT(optimized_nodes(replaced(kErf, what, by)), testing::Not(testing::HasSubstr("Gelu")));
  }
}

TEST(Gelu, OfAnotherTensorsCurveStays) {
  const std::string graph =
      replaced(replaced(kErf, "graph(%x: f32[n]", "graph(%x: f32[n], %z: f32[n]"), "Div(%x", "Div(%z");
  const Optimized result = optimized(graph);
  EXPECT_THAT(result.nodes, testing::HasSubstr("Erf"));
  EXPECT_TRUE(declined(result.report, "gelu", "it is no half of x times 1 plus erf or tanh of x"));
}

TEST(Gelu, BeforeOpset20Stays) { EXPECT_THAT(optimized_nodes(kErf, {}, 19), testing::HasSubstr("Erf")); }

TEST(Gelu, OfTanhIsOneNode) {
  const std::string_view graph = R"(
    graph(%x: f32[n], %three: f32[] = {3}, %small: f32[] = {0.044715}, %c: f32[] = {0.7978845608}, %one: f32[] = {1}, %half: f32[] = {0.5}):
      %p: f32[n] = Pow(%x, %three)
      %s: f32[n] = Mul(%small, %p)
      %a: f32[n] = Add(%x, %s)
      %m: f32[n] = Mul(%c, %a)
      %t: f32[n] = Tanh(%m)
      %o: f32[n] = Add(%one, %t)
      %h: f32[n] = Mul(%half, %x)
      %y: f32[n] = Mul(%h, %o)
      return (%y))";
  const std::string expected = "  %y = Gelu(%x) {approximate=\"tanh\"}\n  return (%y)\n";
  EXPECT_EQ(optimized_nodes(graph), expected);
  EXPECT_THAT(optimized_nodes(replaced(graph, "{3}", "{2}")), testing::HasSubstr("Tanh"));
}

TEST(QuickGelu, IsForOnnxruntimeAlone) {
  const std::string_view graph = R"(
    graph(%x: f32[n], %alpha: f32[] = {1.702}):
      %m: f32[n] = Mul(%x, %alpha)
      %s: f32[n] = Sigmoid(%m)
      %y: f32[n] = Mul(%x, %s)
      return (%y))";
  EXPECT_EQ(optimized_nodes(graph), unchanged(graph));
  ir::Model model;
  model.graph = ir::parse_graph(graph);
  model.opsets[""] = 25;
  optimize(model, {.target = Target::kOnnxRuntime});
  EXPECT_EQ(model.graph->node_count(), 1U);
  EXPECT_EQ(model.graph->first()->qualified_name(), "com.microsoft::QuickGelu");
  EXPECT_EQ(model.opsets.at("com.microsoft"), 1);
}

// ------------------------------------------------------------------------------------------------ norms

constexpr std::string_view kLayerNorm = R"(
    graph(%x: f32[b,4], %w: f32[4] = {1, 2, 3, 4}, %bias: f32[4] = {4, 3, 2, 1}, %eps: f32[] = {0.5}, %two: f32[] = {2}, %axis: i64[1] = {-1}):
      %m: f32[b,1] = ReduceMean(%x, %axis) {keepdims=1}
      %d: f32[b,4] = Sub(%x, %m)
      %p: f32[b,4] = Pow(%d, %two)
      %v: f32[b,1] = ReduceMean(%p, %axis) {keepdims=1}
      %e: f32[b,1] = Add(%v, %eps)
      %r: f32[b,1] = Sqrt(%e)
      %n: f32[b,4] = Div(%d, %r)
      %s: f32[b,4] = Mul(%n, %w)
      %y: f32[b,4] = Add(%s, %bias)
      return (%y))";

TEST(LayerNorm, WrittenOutIsOneNodeAtEveryOpset) {
  for (const int opset : {18, 25}) {
    EXPECT_EQ(optimized_nodes(kLayerNorm, {}, opset),
              "  %y = LayerNormalization(%x, %w, %bias) {axis=-1, epsilon=0.5}\n  return (%y)\n");
  }
}

TEST(LayerNorm, OfADifferenceFromSomethingElseStays) {
  const Optimized result = optimized(replaced(kLayerNorm, "Sub(%x, %m)", "Sub(%x, %w)"), {}, 22);
  EXPECT_THAT(result.nodes, testing::HasSubstr("Sqrt"));
  EXPECT_TRUE(declined(result.report, "layer_norm", "what is normalized is not moved to a mean of 0"));
}

TEST(Norm, OfATransposeComesBeforeIt) {
  const std::string_view graph = R"(
    graph(%x: f32[b,s,2,4], %w: f32[4]):
      %t: f32[b,2,s,4] = Transpose(%x) {perm=[0, 2, 1, 3]}
      %y: f32[b,2,s,4] = RMSNormalization(%t, %w) {axis=-1, epsilon=0.5}
      return (%y))";
  EXPECT_EQ(optimized_nodes(graph), R"(  %0 = RMSNormalization(%x, %w) {axis=-1, epsilon=0.5}
  %y = Transpose(%0) {perm=[0, 2, 1, 3]}
  return (%y)
)");
  const std::string moved =
      replaced(replaced(graph, "[0, 2, 1, 3]", "[0, 1, 3, 2]"), "%t: f32[b,2,s,4]", "%t: f32[b,s,4,2]");
  EXPECT_THAT(optimized_nodes(moved), testing::StartsWith("  %t = Transpose(%x)"));
}

}  // namespace
}  // namespace exportguard::optimizer
