#include <gmock/gmock.h>

#include "exportguard/common/errors.h"
#include "exportguard/ir/text.h"
#include "exportguard/ir/verify.h"
#include "graph_building.h"

namespace exportguard::ir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::string_view kEverything = R"(
graph(%x: f32[batch,3], %p: bool[], %w: f32[2] = {1, 2}):
  %a: f32[batch,3] = aten.add.Tensor(%x, %x, 2.5)
  %o = If(%p) {then_branch=graph(%k: i64[1] = {3}):
      %y = Add(%a, %k)
      %z = If(%p) {then_branch=graph():
          return (%y), else_branch=graph():
          return (%a)}
      return (%z), else_branch=graph():
      return (%x)}
  return (%o as out, _, %w))";

TEST(Clone, PrintsAsTheOriginal) {
  const auto graph = parse_graph(kEverything);
  EXPECT_EQ(print(*graph->clone()), print(*graph));
}

TEST(Clone, SharesNothingButTensorsWithTheOriginal) {
  auto graph = parse_graph(kEverything);
  const std::string text = print(*graph);
  const std::string identity = graph->find_initializer("w")->initializer()->identity();
  const auto copy = graph->clone();
  verify(*copy);
  graph.reset();
  EXPECT_EQ(print(*copy), text);
  EXPECT_NO_THROW(verify(*copy));
  EXPECT_EQ(copy->find_initializer("w")->initializer()->identity(), identity);
}

TEST(Clone, KeepsNamesAndSources) {
  Graph graph("name");
  Node& node = graph.append(onnx("Neg", {}));
  node.set_name("neg_1");
  node.set_source(intern({.module = "m"}));
  const auto copy = graph.clone();
  EXPECT_EQ(copy->name(), "name");
  EXPECT_EQ(copy->first()->name(), "neg_1");
  EXPECT_EQ(copy->first()->source(), node.source());
}

TEST(Clone, OfANestedGraphReadsTheSameCapturedValuesOrTheirReplacements) {
  const auto graph = parse_graph(R"(
graph(%x: f32[2], %y: f32[2], %p: bool[]):
  %o = If(%p) {then_branch=graph():
      %n = Neg(%x)
      return (%n)}
  return (%o))");
  const Graph& body = graph->first()->subgraph("then_branch");
  Value& x = graph->input(0);
  Value& y = graph->input(1);
  EXPECT_EQ(&body.clone()->first()->input(0), &x);
  EXPECT_EQ(&body.clone({{&x, &y}})->first()->input(0), &y);
}

TEST(Splice, PutsTheNodesInFrontOfTheGivenOne) {
  const auto graph = parse_graph(R"(
graph(%x: f32[2]):
  %a = Abs(%x)
  %b = Exp(%a)
  return (%b))");
  const auto other = parse_graph(R"(
graph(%u, %v, %w: f32[1] = {2}):
  %m = Mul(%u, %w)
  %n = Add(%m, %v)
  return (%n, _, %u))");
  Node& exp = *graph->last();
  Value* a = &exp.input(0);
  const std::vector<Value*> arguments = {a, &graph->input(0)};

  const std::vector<Value*> results = graph->splice(*other, arguments, &exp);

  EXPECT_THAT(results, ElementsAre(exp.previous() ? &exp.previous()->output() : nullptr, nullptr, a));
  exp.set_input(0, results[0]);
  verify(*graph);
  EXPECT_EQ(print(*graph), normalize(R"(
graph(%x: f32[2], %w: f32[1] = {2}):
  %a = Abs(%x)
  %m = Mul(%a, %w)
  %n = Add(%m, %x)
  %b = Exp(%n)
  return (%b))"));
}

TEST(Splice, GivesAnInitializerAnotherNameIfItsOwnIsTaken) {
  const auto graph = parse_graph("graph(%w: f32[1] = {1}, %w_1: f32[1] = {3}): return (%w, %w_1)");
  const auto other = parse_graph("graph(%w: f32[1] = {2}): return (%w)");
  const std::vector<Value*> results = graph->splice(*other, {}, nullptr);
  EXPECT_EQ(results[0]->name(), "w_2");
  EXPECT_EQ(graph->splice(*other, {}, nullptr)[0], results[0]) << "the same memory is taken over once";
}

TEST(Splice, InlinesABodyOfItsOwnGraph) {
  const auto graph = parse_graph(R"(
graph(%x: f32[2], %p: bool[]):
  %o = If(%p) {then_branch=graph():
      %n = Neg(%x)
      return (%n)}
  return (%o))");
  Node& branch = *graph->first();
  const auto results = graph->splice(branch.subgraph("then_branch"), {}, &branch);
  branch.output().replace_all_uses_with(*results[0]);
  graph->erase(branch);
  verify(*graph);
  EXPECT_EQ(print(*graph), normalize("graph(%x: f32[2], %p: bool[]): %n = Neg(%x) return (%n)"));
}

TEST(Splice, NeedsAnArgumentForEachInput) {
  Graph graph;
  const auto other = parse_graph("graph(%u): return (%u)");
  EXPECT_THAT([&] { graph.splice(*other, {}, nullptr); },
              ThrowsMessage<GraphError>("graph 'main' has 1 inputs, got 0 arguments"));
}

}  // namespace
}  // namespace exportguard::ir
