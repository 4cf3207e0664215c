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

void expect_refused(std::string_view graph, const std::string& text) {
  ir::Model model = model_of(graph);
  EXPECT_THAT([&] { convert(model); }, ::testing::ThrowsMessage<LoweringError>(HasSubstr(text)));
}

TEST(Pipeline, RefusesDtypesThatTorchsKernelsRefuse) {
  expect_refused(R"(
    graph(%x: f32[n,3], %w: f16[3,4]):
      %y: f32[n,4] = aten.mm.default(%x, %w)
      return (%y))",
                 "cannot lower aten.mm.default: torch refuses operands of f32 and f16 when it runs; convert");
  expect_refused(R"(
    graph(%x: i64[n,64]):
      %y: i64[n,64] = aten.softmax.int(%x, -1)
      return (%y))",
                 "torch refuses operands of i64 when it runs");
}

TEST(Pipeline, AsksTorchForTheDtypesOfBodies) {
  expect_refused(R"(
    graph(%p: bool[], %x: i64[n,3]):
      %y: i64[n,3] = higher_order.cond(%p, None, None, [%x]) {true_fn=graph(%a: i64[n,3]):
          %b: i64[n,3] = aten.gelu.default(%a)
          return (%b), false_fn=graph(%c: i64[n,3]):
          return (%c)}
      return (%y))",
                 "aten.gelu.default");
}

TEST(Pipeline, TakesDtypesThatTorchTakes) {
  ir::Model model = model_of(R"(
    graph(%x: f16[n,3], %w: f16[3,4], %i: i64[n]):
      %y: f16[n,4] = aten.mm.default(%x, %w)
      %z: f16[n,4] = aten.index_select.default(%y, 0, %i)
      %s: f32[n,4] = aten.softmax.int(%z, -1, dtype:f32)
      %t: i64[n] = aten.floor_divide.default(%i, %i)
      return (%s, %t))");
  convert(model);
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
