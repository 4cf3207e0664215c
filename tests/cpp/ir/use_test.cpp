#include <gmock/gmock.h>

#include "exportguard/common/errors.h"
#include "exportguard/ir/graph.h"
#include "exportguard/ir/verify.h"
#include "graph_building.h"

namespace exportguard::ir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(Uses, KnowTheirUserAndTheOperand) {
  Graph graph;
  Value& x = graph.add_input("x", f32({2}));
  Node& node = graph.append(onnx("Add", {nullptr, &x}));
  ASSERT_THAT(x.uses(), SizeIs(1));
  EXPECT_EQ(&x.uses().front()->user(), &node);
  EXPECT_EQ(x.uses().front()->index(), 1u);
  EXPECT_EQ(x.uses().front()->value(), &x);
}

TEST(Uses, ComeInTheOrderInWhichTheyWereMade) {
  Graph graph;
  Value& x = graph.add_input("x", f32({2}));
  for (const char* op : {"Abs", "Neg", "Exp"}) add(graph, op, {&x});
  std::vector<std::string> users;
  for (const Use* use : x.uses()) users.push_back(use->user().op());
  EXPECT_THAT(users, ElementsAre("Abs", "Neg", "Exp"));
}

TEST(Uses, OfOneValueInSeveralOperandsAreCountedEach) {
  Graph graph;
  Value& x = graph.add_input("x", f32({2}));
  add(graph, "Mul", {&x, &x});
  EXPECT_EQ(x.use_count(), 2u);
}

TEST(Uses, SurviveTheGrowthOfTheOperandList) {
  Graph graph;
  std::vector<Value*> values;
  Node& node = graph.append(onnx("Concat", {}));
  Node& other = graph.append(onnx("Concat", {}));
  for (int i = 0; i < 100; ++i) {
    values.push_back(&graph.add_input({}, f32({2})));
    node.append_input(values.back());
    other.append_input(values.front());
    node.append_input(values.front());
  }
  EXPECT_EQ(values.front()->use_count(), 201u);
  for (std::size_t i = 1; i < values.size(); ++i) EXPECT_EQ(values[i]->uses().front()->index(), 2 * i);
}

TEST(Uses, FollowAnOperandThatIsSetAnew) {
  Graph graph;
  Value& x = graph.add_input("x", f32({2}));
  Value& y = graph.add_input("y", f32({2}));
  Node& node = graph.append(onnx("Add", {&x, &x}));
  node.set_input(0, &y);
  node.set_input(1, nullptr);
  EXPECT_TRUE(x.is_unused());
  EXPECT_EQ(y.use_count(), 1u);
  EXPECT_EQ(node.find_input(1), nullptr);
}

TEST(ReplaceAllUses, ReachesNodesNestedGraphsAndReturns) {
  Graph graph;
  Value& x = graph.add_input("x", f32({2}));
  Value& y = graph.add_input("y", f32({2}));
  add(graph, "Abs", {&x});
  Node& branch = graph.append(onnx("If", {}));
  auto body = std::make_unique<Graph>("body");
  add(*body, "Neg", {&x});
  body->add_output(&x);
  Graph& nested = *body;
  branch.set_attribute("then_branch", std::move(body));
  graph.add_output(&x, "out");

  x.replace_all_uses_with(y);

  EXPECT_TRUE(x.is_unused());
  EXPECT_EQ(y.use_count(), 4u);
  EXPECT_EQ(&graph.output(0), &y);
  EXPECT_EQ(&nested.output(0), &y);
}

TEST(ReplaceAllUses, WithItselfChangesNothing) {
  Graph graph;
  Value& x = graph.add_input("x", f32({2}));
  add(graph, "Mul", {&x, &x});
  x.replace_all_uses_with(x);
  EXPECT_EQ(x.use_count(), 2u);
}

TEST(ReplaceAllUses, KeepsTheReadersThatTheOtherValueHad) {
  Graph graph;
  Value& x = graph.add_input("x", f32({2}));
  Value& y = graph.add_input("y", f32({2}));
  add(graph, "Add", {&x, &y});
  x.replace_all_uses_with(y);
  EXPECT_EQ(y.use_count(), 2u);
  EXPECT_NO_THROW(verify(graph));
}

TEST(ReplaceAllUses, PutsTheReadersBehindThoseThatTheOtherValueHad) {
  Graph graph;
  Value& x = graph.add_input("x", f32({2}));
  Value& y = graph.add_input("y", f32({2}));
  for (const char* op : {"Abs", "Neg"}) add(graph, op, {&x});
  for (const char* op : {"Sin", "Cos"}) add(graph, op, {&y});
  x.replace_all_uses_with(y);
  std::vector<std::string> readers;
  for (const Use* use : y.uses()) readers.push_back(use->user().op());
  EXPECT_THAT(readers, testing::ElementsAre("Sin", "Cos", "Abs", "Neg"));
  EXPECT_TRUE(x.is_unused());
  y.uses().back()->user().set_input(0, &x);  // the list is sound
  EXPECT_EQ(y.use_count(), 3u);
}

TEST(Teardown, LetsANestedGraphOutliveWhatItCaptured) {
  auto body = std::make_unique<Graph>("body");
  {
    Graph graph;
    Value& x = graph.add_input("x", f32({2}));
    add(*body, "Neg", {&x});
    body->add_output(&x);
  }
  EXPECT_EQ(body->first()->find_input(0), nullptr);
  EXPECT_EQ(body->find_output(0), nullptr);
}

TEST(Teardown, LetsValuesOutliveTheGraphThatReadThem) {
  Graph graph;
  Value& x = graph.add_input("x", f32({2}));
  {
    Graph body("body");
    add(body, "Neg", {&x});
    body.add_output(&x);
    EXPECT_EQ(x.use_count(), 2u);
  }
  EXPECT_TRUE(x.is_unused());
}

TEST(Teardown, OfAChainOf200000NodesNeedsNoDeepStack) {
  auto graph = std::make_unique<Graph>();
  Value* value = &graph->add_input("x", f32({2}));
  for (int i = 0; i < 200'000; ++i) value = &add(*graph, "Neg", {value});
  graph->add_output(value);
  EXPECT_NO_THROW(verify(*graph));
  graph.reset();
  EXPECT_EQ(graph, nullptr);
}

}  // namespace
}  // namespace exportguard::ir
