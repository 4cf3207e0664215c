#include "exportguard/pipeline/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exportguard/common/errors.h"
#include "exportguard/ir/text.h"
#include "exportguard/ir/verify.h"

namespace exportguard::pipeline {
namespace {

using ::testing::HasSubstr;

ir::Model model_of(std::string_view graph) {
  ir::Model model;
  model.graph = ir::parse_graph(graph);
  return model;
}

constexpr std::string_view kOwn = R"(
    graph(%x: f32[n]):
      %y: f32[n] = own.twice.default(%x)
      return (%y))";

std::unique_ptr<ir::Graph> doubled(const expansion::Call&) {
  return ir::parse_graph(R"(
    graph(%a: f32[d0]):
      %b: f32[d0] = aten.clone.default(%a)
      %c: f32[d0] = aten.add_.Tensor(%b, %a)
      return (%c))");
}

TEST(Pipeline, MakesAnExpansionFunctionalBeforeItIsLowered) {
  ir::Model model = model_of(kOwn);
  const PipelineReport report = convert(model, {.lowering = {.opset = 20}, .trace = doubled});
  EXPECT_EQ(report.expanded, 1U);
  EXPECT_EQ(model.opsets.at(""), 20);
  EXPECT_THAT(ir::print(*model.graph), HasSubstr("%y: f32[n] = Add(%x, %x)"));
}

TEST(Pipeline, ReportsWhatHasNoRowWithoutATrace) {
  ir::Model model = model_of(kOwn);
  EXPECT_THROW(convert(model), LoweringError);
}

TEST(Pipeline, LeavesOutOutputsOfWrittenInputsIfAsked) {
  constexpr std::string_view kWrites = R"(
    graph(%x: f32[n]):
      %y: f32[n] = aten.add_.Tensor(%x, 1)
      %z: f32[n] = aten.relu.default(%y)
      return (%z))";
  ir::Model all = model_of(kWrites);
  EXPECT_EQ(convert(all).functionalized.extra_outputs, 1U);
  EXPECT_EQ(all.graph->output_count(), 2U);
  ir::Model some = model_of(kWrites);
  convert(some, {.outputs = 1});
  EXPECT_EQ(some.graph->output_count(), 1U);
}

TEST(Pipeline, EndsWithTheOptimizer) {
  ir::Model model = model_of("graph(%x: f32[n]):\n  %y: f32[n] = aten.relu.default(%x)\n  return (%y)");
  std::string seen;
  convert(model, {.optimize = [&](ir::Model& lowered) { seen = ir::print(*lowered.graph); }});
  EXPECT_THAT(seen, HasSubstr("Relu(%x)"));
}

}  // namespace
}  // namespace exportguard::pipeline
