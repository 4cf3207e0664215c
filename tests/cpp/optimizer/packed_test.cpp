#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exportguard/ir/text.h"
#include "exportguard/ir/verify.h"
#include "optimizer/optimized.h"

namespace exportguard::optimizer {
namespace {

Optimized for_onnxruntime(std::string_view text, const std::vector<std::string>& only = {}) {
  ir::Model model;
  model.graph = ir::parse_graph(text);
  model.opsets[""] = 23;
  OptimizeOptions options;
  options.only = only;
  options.target = Target::kOnnxRuntime;
  Report report = optimize(model, options);
  ir::verify(model);
  const std::string printed = ir::print(*model.graph, {.types = false});
  return {printed.substr(printed.find('\n') + 1), std::move(report)};
}

constexpr std::string_view kProjections = R"(
graph(%x: f32[b,s,2], %a.q.w: f32[2,1] = {1.0, 2.0}, %a.k.w: f32[2,2] = {3.0, 4.0, 5.0, 6.0}):
  %q: f32[b,s,1] = MatMul(%x, %a.q.w)
  %r: f32[b,s,1] = Abs(%q)
  %k: f32[b,s,2] = MatMul(%x, %a.k.w)
  return (%r, %k)
)";

TEST(PackedProjections, ProductsOfOneValueBecomeOne) {
  EXPECT_EQ(for_onnxruntime(kProjections).nodes, R"(  %0 = MatMul(%x, %"a.q+k.w")
  %q, %k = Split(%0, %"constant.i64[1,2]") {axis=-1}
  %r = Abs(%q)
  return (%r, %k)
)");
}

TEST(PackedProjections, WeightsLieSideBySide) {
  ir::Model model;
  model.graph = ir::parse_graph(kProjections);
  model.opsets[""] = 23;
  (void)optimize(model, {.target = Target::kOnnxRuntime});
  const ir::Value* weight = model.graph->find_initializer("a.q+k.w");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->initializer()->to_doubles(), (std::vector<double>{1, 3, 4, 2, 5, 6}));
  EXPECT_EQ(model.graph->initializers().size(), 2U);  // and the widths
}

TEST(PackedProjections, PortableGraphsKeepTheirWeights) {
  EXPECT_EQ(optimized_nodes(kProjections), unchanged(kProjections));
}

TEST(PackedProjections, BiasesAreJoinedAsWell) {
  EXPECT_EQ(for_onnxruntime(R"(
graph(%x: f32[b,2], %q.w: f32[2,1] = {1.0, 2.0}, %k.w: f32[2,1] = {3.0, 4.0}, %q.b: f32[1] = {5.0}, %k.b: f32[1] = {6.0}):
  %0: f32[b,1] = MatMul(%x, %q.w)
  %q: f32[b,1] = Add(%0, %q.b)
  %1: f32[b,1] = MatMul(%x, %k.w)
  %k: f32[b,1] = Add(%k.b, %1)
  return (%q, %k)
)",
                            {"packed_projections"})
                .nodes,
            R"(  %0 = MatMul(%x, %"q+k.w")
  %1 = Add(%0, %"q+k.b")
  %q, %k = Split(%1, %"constant.i64[1,1]") {axis=-1}
  return (%q, %k)
)");
}

TEST(PackedProjections, OneBiasOfTwoStaysBehindTheSplit) {
  EXPECT_EQ(for_onnxruntime(R"(
graph(%x: f32[b,2], %q.w: f32[2,1] = {1.0, 2.0}, %k.w: f32[2,1] = {3.0, 4.0}, %q.b: f32[1] = {5.0}):
  %0: f32[b,1] = MatMul(%x, %q.w)
  %q: f32[b,1] = Add(%0, %q.b)
  %k: f32[b,1] = MatMul(%x, %k.w)
  return (%q, %k)
)",
                            {"packed_projections"})
                .nodes,
            R"(  %0 = MatMul(%x, %"q+k.w")
  %1, %k = Split(%0, %"constant.i64[1,1]") {axis=-1}
  %q = Add(%1, %q.b)
  return (%q, %k)
)");
}

TEST(PackedProjections, AWeightThatIsReadElsewhereIsNotWrittenTwice) {
  const std::string_view graph = R"(
graph(%x: f32[b,2], %q.w: f32[2,2] = {1.0, 2.0, 3.0, 4.0}, %k.w: f32[2,1] = {3.0, 4.0}):
  %q: f32[b,2] = MatMul(%x, %q.w)
  %k: f32[b,1] = MatMul(%x, %k.w)
  %other: f32[b,2] = MatMul(%q, %q.w)
  return (%k, %other)
)";
  const Optimized result = for_onnxruntime(graph, {"packed_projections"});
  EXPECT_EQ(result.nodes, unchanged(graph));
  EXPECT_TRUE(declined(result.report, "packed_projections", "the second operand is no weight of its own"));
  EXPECT_TRUE(declined(result.report, "packed_projections", "no other product of the same operand"));
}

TEST(PackedProjections, ProductsOfDifferentGraphsStayApart) {
  const std::string_view graph = R"(
graph(%x: f32[b,2], %p: bool[], %q.w: f32[2,1] = {1.0, 2.0}, %k.w: f32[2,1] = {3.0, 4.0}):
  %q: f32[b,1] = MatMul(%x, %q.w)
  %o: f32[b,1] = If(%p) {then_branch=graph():
      %k: f32[b,1] = MatMul(%x, %k.w)
      return (%k), else_branch=graph():
      %n: f32[b,1] = Neg(%q)
      return (%n)}
  return (%o)
)";
  EXPECT_EQ(for_onnxruntime(graph, {"packed_projections"}).nodes, unchanged(graph));
}

constexpr std::string_view kNormOfSum = R"(
graph(%x: f32[b,s,2], %y: f32[b,s,2], %w: f32[2] = {1.0, 2.0}):
  %sum: f32[b,s,2] = Add(%x, %y)
  %abs: f32[b,s,2] = Abs(%sum)
  %n: f32[b,s,2] = RMSNormalization(%sum, %w) {axis=-1, epsilon=0.5}
  return (%n, %abs)
)";

TEST(SkipNorm, ASumIsNormalizedInOnePass) {
  EXPECT_EQ(for_onnxruntime(kNormOfSum).nodes,
            R"(  %n, %0, %1, %sum = com.microsoft::SkipSimplifiedLayerNormalization(%x, %y, %w) {epsilon=0.5}
  %abs = Abs(%sum)
  return (%n, %abs)
)");
}

TEST(SkipNorm, TheDomainIsImported) {
  ir::Model model;
  model.graph = ir::parse_graph(kNormOfSum);
  model.opsets[""] = 23;
  (void)optimize(model, {.target = Target::kOnnxRuntime});
  EXPECT_EQ(model.opsets.at("com.microsoft"), 1);
}

TEST(SkipNorm, ASumThatStretchesAnOperandStays) {
  const std::string_view graph = R"(
graph(%x: f32[b,s,2], %y: f32[2], %w: f32[2] = {1.0, 2.0}):
  %sum: f32[b,s,2] = Add(%x, %y)
  %n: f32[b,s,2] = RMSNormalization(%sum, %w) {axis=-1}
  return (%n)
)";
  const Optimized result = for_onnxruntime(graph);
  EXPECT_EQ(result.nodes, unchanged(graph));
  EXPECT_TRUE(declined(result.report, "skip_rms_norm", "an operand of the sum may be stretched"));
}

TEST(SkipNorm, FourAxesAndOtherAxesStay) {
  const std::string_view four = R"(
graph(%x: f32[b,s,3,2], %w: f32[2] = {1.0, 2.0}):
  %sum: f32[b,s,3,2] = Add(%x, %x)
  %n: f32[b,s,3,2] = RMSNormalization(%sum, %w) {axis=-1}
  return (%n)
)";
  EXPECT_TRUE(declined(for_onnxruntime(four).report, "skip_rms_norm", "the kernel takes two or three axes"));
  const std::string_view two = R"(
graph(%x: f32[b,2,2], %w: f32[2] = {1.0, 2.0}):
  %sum: f32[b,2,2] = Add(%x, %x)
  %n: f32[b,2,2] = RMSNormalization(%sum, %w) {axis=1}
  return (%n)
)";
  EXPECT_TRUE(declined(for_onnxruntime(two).report, "skip_rms_norm", "it normalizes over more than the last axis"));
}

std::string shared_keys(const std::string& queries, const std::string& keys) {
  return "graph(%q: f32[b,s," + queries + "], %k: f32[b,s," + keys + "], %v: f32[b,s," + keys + R"(]):
  %y = Attention(%q, %k, %v) {q_num_heads=4, kv_num_heads=2}
  return (%y)
)";
}

TEST(FoldedQueries, ForAnyRuntimeHeadsAreLarger) {
  const auto folds = testing::HasSubstr("q_num_heads=2");
  EXPECT_THAT(optimized_nodes(shared_keys("512", "256")), folds);
  EXPECT_THAT(optimized_nodes(shared_keys("256", "128")), testing::Not(folds));
  EXPECT_THAT(for_onnxruntime(shared_keys("256", "128")).nodes, folds);
  EXPECT_THAT(for_onnxruntime(shared_keys("128", "64")).nodes, testing::Not(folds));
}

TEST(QuickGelu, BothFormsBecomeOneNode) {
  EXPECT_EQ(for_onnxruntime(R"(
graph(%x: f32[n], %c: f32[] = {1.5}):
  %s: f32[n] = Sigmoid(%x)
  %y: f32[n] = Mul(%s, %x)
  %t: f32[n] = Mul(%c, %y)
  %u: f32[n] = Sigmoid(%t)
  %z: f32[n] = Mul(%y, %u)
  return (%z)
)")
                .nodes,
            R"(  %y = com.microsoft::QuickGelu(%x) {alpha=1.0}
  %z = com.microsoft::QuickGelu(%y) {alpha=1.5}
  return (%z)
)");
}

TEST(QuickGelu, ASigmoidOfAnotherTensorStays) {
  const std::string_view graph = R"(
graph(%x: f32[n], %y: f32[n]):
  %s: f32[n] = Sigmoid(%y)
  %z: f32[n] = Mul(%s, %x)
  return (%z)
)";
  EXPECT_EQ(for_onnxruntime(graph).nodes, unchanged(graph));
}

}  // namespace
}  // namespace exportguard::optimizer
