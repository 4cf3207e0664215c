#include "exportguard/ir/verify.h"

#include <gmock/gmock.h>

#include "exportguard/common/errors.h"
#include "exportguard/ir/text.h"
#include "graph_building.h"

namespace exportguard::ir {
namespace {

using ::testing::ThrowsMessage;

TEST(Verify, AcceptsNestedGraphsThatCaptureValues) {
  const auto graph = parse_graph(R"(
graph(%x: f32[2], %p: bool[], %w: f32[1] = {1}):
  %a = Neg(%x)
  %o = If(%p) {then_branch=graph():
      %b = Add(%a, %w)
      return (%b), else_branch=graph():
      return (%x)}
  return (%o, _))");
  EXPECT_NO_THROW(verify(*graph));
  EXPECT_NO_THROW(verify(graph->last()->subgraph("then_branch")));
}

TEST(Verify, NamesTheNodeThatReadsAValueBeforeItIsDefined) {
  Graph graph;
  Value& x = graph.add_input("x", {});
  Value& late = add(graph, "Abs", {&x}, "late");
  Node& early = graph.insert_before(*late.producer(), onnx("Neg", {&x, &late}));
  early.output().set_name("early");
  early.set_source(intern({.module = "model.mlp", .file = "/a/m.py", .line = 3}));
  EXPECT_THAT([&] { verify(graph); },
              ThrowsMessage<GraphError>("Neg %early (model.mlp, m.py:3), operand 1, reads %late: it is defined later"));
}

TEST(Verify, FindsANodeThatReadsItself) {
  Graph graph;
  Value& x = add(graph, "Neg", {nullptr}, "x");
  x.producer()->set_input(0, &x);
  EXPECT_THAT([&] { verify(graph); }, ThrowsMessage<GraphError>("Neg %x, operand 0, reads %x: it is defined later"));
}

TEST(Verify, FindsAnOperandOfAGraphThatDoesNotEncloseTheReader) {
  Graph other("other");
  Value& x = other.add_input("x", {});
  Graph graph;
  add(graph, "Neg", {&x}, "y");
  EXPECT_THAT([&] { verify(graph); },
              ThrowsMessage<GraphError>(
                  "Neg %y, operand 0, reads %x: it belongs to graph 'other', which does not enclose graph 'main'"));
  EXPECT_THAT(
      [&] { verify(other); },
      ThrowsMessage<GraphError>("%x has 1 uses, but 0 operands of this graph read it: another graph reads it, too"));
}

TEST(Verify, FindsAnOutputOfAnotherGraph) {
  Graph other("other");
  Graph graph;
  graph.add_output(&other.add_input("x", {}));
  EXPECT_THAT(
      [&] { verify(graph); },
      ThrowsMessage<GraphError>(
          "output 0 of graph 'main' reads %x: it belongs to graph 'other', which does not enclose graph 'main'"));
}

TEST(Verify, FindsABodyThatReadsWhatFollowsItsNode) {
  Graph graph;
  Node& branch = graph.append(onnx("If", {}));
  Value& late = add(graph, "Abs", {}, "late");
  branch.set_attribute("then_branch", std::make_unique<Graph>("then"));
  add(branch.subgraph("then_branch"), "Neg", {&late}, "y");
  const auto expected = ThrowsMessage<GraphError>("Neg %y, operand 0, reads %late: it is defined later");
  EXPECT_THAT([&] { verify(graph); }, expected);
  EXPECT_THAT([&] { verify(branch.subgraph("then_branch")); }, expected);
}

TEST(Verify, FindsAnArgumentThatNamesNoOperand) {
  Graph graph;
  const Argument::List list = {{std::int64_t{1}}, {Argument::Operand{1}}};
  NodeSpec spec{.domain = "aten", .op = "cat.default", .inputs = {&add(graph, "Neg", {})}, .is_torch = true};
  spec.arguments = {{Argument::Operand{0}}, {list}};
  graph.append(std::move(spec));
  EXPECT_THAT([&] { verify(graph); },
              ThrowsMessage<GraphError>("aten.cat.default: argument 1 names operand 1, but there are 1 operands"));
}

TEST(Verify, FindsArgumentsOfAnOnnxNode) {
  Graph graph;
  graph.append(onnx("Neg", {})).set_arguments({{std::int64_t{1}}});
  EXPECT_THAT([&] { verify(graph); },
              ThrowsMessage<GraphError>("Neg: an ONNX node has no arguments; operands and attributes say all"));
}

TEST(Verify, FindsNamesGivenTwice) {
  Graph graph;
  graph.add_input("x", {});
  graph.add_input("x", {});
  EXPECT_THAT(
      [&] { verify(graph); },
      ThrowsMessage<GraphError>("graph 'main': the name 'x' of input 1 is taken by another input or initializer"));
  graph.erase_input(1);
  graph.add_initializer("x", Tensor::ints({1}));
  EXPECT_THAT([&] { verify(graph); },
              ThrowsMessage<GraphError>(
                  "graph 'main': the name 'x' of an initializer is taken by another input or initializer"));
}

TEST(Verify, FindsOutputNamesGivenTwiceOrTakenByAnInput) {
  Graph graph;
  Value& x = graph.add_input("x", {});
  Value& y = add(graph, "Neg", {&x});
  graph.add_output(&y, "y");
  graph.add_output(&x, "y");
  EXPECT_THAT([&] { verify(graph); }, ThrowsMessage<GraphError>("graph 'main': two outputs have the name 'y'"));
  graph.set_output_name(1, "x");
  EXPECT_NO_THROW(verify(graph)) << "the output is that input";
  graph.set_output_name(1, "");
  graph.set_output_name(0, "x");
  EXPECT_THAT([&] { verify(graph); },
              ThrowsMessage<GraphError>("graph 'main': the name 'x' of output 0 is taken by an input or initializer"));
}

TEST(Verify, LooksIntoTheFunctionsOfAModel) {
  Model model = parse_model("graph(): return () function d::f(%x): %y = Neg(%x) return (%y)");
  EXPECT_NO_THROW(verify(model));
  model.functions[0].body->set_output(0, &model.graph->add_input("outside", {}));
  EXPECT_THROW(verify(model), GraphError);
}

}  // namespace
}  // namespace exportguard::ir
