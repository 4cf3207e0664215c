#include "exportguard/optimizer/outline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exportguard/ir/text.h"
#include "exportguard/ir/verify.h"

namespace exportguard::optimizer {
namespace {

const std::map<std::string, FunctionName> kLayers = {{"layers.0", {"model", "Layer"}},
                                                     {"layers.1", {"model", "Layer"}}};

/// The path that a name stands for: `m0_a` and `m0_mlp` are values of layers.0 and layers.0.mlp.
std::string module_of(const std::string& name) {
  const bool is_inner = name.ends_with("_mlp");
  return name.starts_with('m') ? std::string("layers.") + name.at(1) + (is_inner ? ".mlp" : "") : std::string();
}

struct OutlinedText {
  std::string nodes;  ///< of the main graph
  std::vector<std::string> functions;
  std::size_t calls = 0;
};

OutlinedText outlined(std::string_view text, const std::map<std::string, FunctionName>& modules = kLayers) {
  ir::Model model;
  model.graph = ir::parse_graph(text);
  model.opsets[""] = 22;
  for (ir::Node& node : *model.graph) {
    const std::string path = module_of(node.output().name());
    node.set_source(ir::intern(ir::SourceView{.target = {}, .module = path, .type = {}, .file = {}, .code = {}}));
  }
  OutlinedText result;
  result.calls = outline_modules(model, modules);
  ir::verify(model);
  const std::string printed = ir::print(*model.graph, {.types = false});
  result.nodes = printed.substr(printed.find('\n') + 1);
  for (const ir::Function& function : model.functions) result.functions.push_back(function.name);
  return result;
}

TEST(OutlineModules, CallsOneFunctionForModulesWithOneBody) {
  const OutlinedText made = outlined(R"(
    graph(%x: f32[2,3], %w: f32[3,3], %v: f32[3,3]):
      %m0_a: f32[2,3] = MatMul(%x, %w)
      %m0_b: f32[2,3] = Relu(%m0_a)
      %m1_a: f32[2,3] = MatMul(%m0_b, %v)
      %m1_b: f32[2,3] = Relu(%m1_a)
      return (%m1_b))");
  EXPECT_EQ(made.nodes, R"(  %m0_b = model::Layer(%x, %w)
  %m1_b = model::Layer(%m0_b, %v)
  return (%m1_b)
)");
  EXPECT_THAT(made.functions, testing::ElementsAre("Layer"));
}

TEST(OutlineModules, MakesAnotherFunctionOfAnotherBody) {
  const OutlinedText made = outlined(R"(
    graph(%x: f32[2,3]):
      %m0_a: f32[2,3] = Relu(%x)
      %m1_a: f32[2,3] = Exp(%m0_a)
      return (%m1_a))");
  EXPECT_THAT(made.functions, testing::ElementsAre("Layer", "Layer_2"));
}

TEST(OutlineModules, MakesAnotherFunctionOfOtherShapes) {
  const OutlinedText made = outlined(R"(
    graph(%x: f32[2,3], %y: f32[n]):
      %m0_a: f32[2,3] = Relu(%x)
      %m1_a: f32[n] = Relu(%y)
      return (%m0_a, %m1_a))");
  EXPECT_THAT(made.functions, testing::ElementsAre("Layer", "Layer_2"));
}

TEST(OutlineModules, GivesABodyItsOwnNumbersAndAnInputForEachWeight) {
  const OutlinedText made = outlined(R"(
    graph(%x: f32[2,3], %w: f32[3] = {1, 2, 3}, %two: f32[] = {2}, %axes: i64[1] = {0}):
      %m0_a: f32[2,3] = Mul(%x, %two)
      %m0_b: f32[2,3] = Add(%m0_a, %w)
      %m0_c: f32[1,2,3] = Unsqueeze(%m0_b, %axes)
      return (%m0_c))");
  EXPECT_EQ(made.nodes, "  %m0_c = model::Layer(%x, %w)\n  return (%m0_c)\n");
}

TEST(OutlineModules, IsTwoCallsAroundANodeThatIsComputedBetween) {
  const OutlinedText made = outlined(R"(
    graph(%x: f32[2]):
      %m0_a: f32[2] = Relu(%x)
      %between: f32[2] = Exp(%m0_a)
      %m0_b: f32[2] = Add(%m0_a, %between)
      return (%m0_b))");
  EXPECT_EQ(made.calls, 2U);
  EXPECT_THAT(made.functions, testing::ElementsAre("Layer", "Layer_2"));
}

TEST(OutlineModules, IsOneCallAroundNodesThatMayComeBeforeOrBehind) {
  const OutlinedText made = outlined(R"(
    graph(%x: f32[2], %y: f32[2]):
      %m0_a: f32[2] = Relu(%x)
      %before: f32[2] = Exp(%y)
      %m0_b: f32[2] = Add(%m0_a, %before)
      %behind: f32[2] = Exp(%m0_a)
      %m0_c: f32[2] = Neg(%m0_b)
      return (%m0_c, %behind))");
  EXPECT_EQ(made.calls, 1U);
  EXPECT_EQ(made.nodes, R"(  %before = Exp(%y)
  %m0_a, %m0_c = model::Layer(%x, %before)
  %behind = Exp(%m0_a)
  return (%m0_c, %behind)
)");
}

TEST(OutlineModules, CallsTheFunctionOfAnInnerModuleFromThatOfTheOuter) {
  std::map<std::string, FunctionName> modules = kLayers;
  modules["layers.0.mlp"] = modules["layers.1.mlp"] = {"model", "Mlp"};
  const OutlinedText made = outlined(R"(
    graph(%x: f32[2]):
      %m0_mlp: f32[2] = Relu(%x)
      %m0_b: f32[2] = Add(%m0_mlp, %x)
      %m1_mlp: f32[2] = Relu(%m0_b)
      %m1_b: f32[2] = Add(%m1_mlp, %m0_b)
      return (%m1_b))",
                                     modules);
  EXPECT_THAT(made.functions, testing::ElementsAre("Mlp", "Layer"));
  EXPECT_EQ(made.nodes, "  %m0_b = model::Layer(%x)\n  %m1_b = model::Layer(%m0_b)\n  return (%m1_b)\n");
}

TEST(OutlineModules, GivesWhatABodyOfAnotherNodeReads) {
  const OutlinedText made = outlined(R"(
    graph(%x: f32[2], %c: bool[]):
      %m0_a: f32[2] = Relu(%x)
      %y: f32[2] = If(%c) {then_branch=graph():
          %t: f32[2] = Neg(%m0_a)
          return (%t), else_branch=graph():
          %e: f32[2] = Exp(%m0_a)
          return (%e)}
      return (%y))");
  EXPECT_EQ(made.calls, 1U);
}

TEST(OutlineModules, LeavesAModelWithoutSuchModules) {
  const OutlinedText made = outlined("graph(%x: f32[2]):\n  %y: f32[2] = Relu(%x)\n  return (%y)");
  EXPECT_EQ(made.calls, 0U);
  EXPECT_TRUE(made.functions.empty());
}

}  // namespace
}  // namespace exportguard::optimizer
