#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "optimizer/optimized.h"

namespace exportguard::optimizer {
namespace {

constexpr std::string_view kBatchNorm = R"(
    graph(%x: f32[b,1,n], %w: f32[2,1,1] = {1, 2}, %c: f32[2] = {1, 1}, %scale: f32[2] = {2, 4}, %shift: f32[2] = {0, 1}, %mean: f32[2] = {1, 3}, %var: f32[2] = {4, 1}):
      %y: f32[b,2,n] = Conv(%x, %w, %c)
      %z: f32[b,2,n] = BatchNormalization(%y, %scale, %shift, %mean, %var) {epsilon=0.0}
      return (%z))";

TEST(Convolution, TakesTheBatchNormBehindIt) {
  ir::Model model;
  model.graph = ir::parse_graph(kBatchNorm);
  model.opsets[""] = 25;
  optimize(model);
  ASSERT_EQ(model.graph->node_count(), 1U);
  const ir::Node& conv = *model.graph->first();
  EXPECT_EQ(conv.op(), "Conv");
  EXPECT_THAT(conv.input(1).initializer()->to_doubles(), testing::ElementsAre(1, 8));
  EXPECT_THAT(conv.input(2).initializer()->to_doubles(), testing::ElementsAre(0, -7));
}

TEST(Convolution, ThatIsReadAsWellKeepsTheBatchNorm) {
  const Optimized result = optimized(replaced(kBatchNorm, "return (%z)", "return (%z, %y)"));
  EXPECT_THAT(result.nodes, testing::HasSubstr("BatchNormalization"));
  EXPECT_TRUE(
      declined(result.report, "conv_batch_norm", "the operand is no convolution of its own with constant weights"));
}

TEST(Convolution, KeepsABatchNormOfTheBatch) {
  const Optimized result = optimized(replaced(kBatchNorm, "{epsilon=0.0}", "{epsilon=0.0, training_mode=1}"));
  EXPECT_TRUE(declined(result.report, "conv_batch_norm", "it takes the moments of the batch"));
}

TEST(Convolution, KeepsABatchNormWhoseFactorIsInfinite) {
  const Optimized result = optimized(replaced(kBatchNorm, "{4, 1}", "{4, 0}"));
  EXPECT_TRUE(declined(result.report, "conv_batch_norm", "a number becomes infinite"));
}

TEST(Convolution, KeepsABatchNormWithMomentsOfTheRun) {
  const Optimized result = optimized(replaced(kBatchNorm, "%mean: f32[2] = {1, 3}", "%mean: f32[2]"));
  EXPECT_TRUE(declined(result.report, "conv_batch_norm", "its parameters are no constants"));
}

constexpr std::string_view kScaled = R"(
    graph(%x: f32[b,1,n], %w: f32[2,1,1] = {1, 2}, %c: f32[2,1] = {3, 5}):
      %y: f32[b,2,n] = Conv(%x, %w)
      %z: f32[b,2,n] = Mul(%c, %y)
      return (%z))";

TEST(Convolution, TakesANumberForEachChannel) {
  EXPECT_THAT(optimized_nodes(kScaled), testing::StartsWith("  %z = Conv("));
}

TEST(Convolution, KeepsANumberForEachPlace) {
  const std::string graph = replaced(replaced(kScaled, "b,1,n", "b,1,2"), "%c: f32[2,1]", "%c: f32[1,2]");
  std::string fixed = graph;
  for (std::size_t at = fixed.find("b,2,n"); at != std::string::npos; at = fixed.find("b,2,n"))
    fixed.replace(at, 5, "b,2,2");
  const Optimized result = optimized(fixed);
  EXPECT_THAT(result.nodes, testing::HasSubstr("Mul"));
  EXPECT_TRUE(declined(result.report, "conv_scale_bias", "the other operand is no number for each channel"));
}

constexpr std::string_view kPadded = R"(
    graph(%x: f32[b,1,n], %w: f32[2,1,3], %pads: i64[6] = {0, 0, 1, 0, 0, 2}):
      %p: f32[b,1,n + 3] = Pad(%x, %pads)
      %y: f32[b,2,n + 2] = Conv(%p, %w) {pads=[1, 0]}
      return (%y))";

TEST(Convolution, PadsByItself) {
  EXPECT_EQ(optimized_nodes(kPadded), "  %y = Conv(%x, %w) {pads=[2, 2]}\n  return (%y)\n");
}

TEST(Convolution, KeepsPaddingOfChannelsOrWithLessThanNothing) {
  for (const std::string_view pads : {"{0, 1, 1, 0, 0, 2}", "{0, 0, -1, 0, 0, 2}"}) {
    const Optimized result = optimized(replaced(kPadded, "{0, 0, 1, 0, 0, 2}", pads));
    EXPECT_THAT(result.nodes, testing::HasSubstr("Pad"));
    EXPECT_TRUE(
        declined(result.report, "conv_padded", "the padding is no known number of zeros around the spatial axes"));
  }
}

}  // namespace
}  // namespace exportguard::optimizer
