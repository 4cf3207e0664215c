#include "exportguard/ir/graph.h"

#include <gmock/gmock.h>

#include <set>
#include <thread>

#include "exportguard/common/errors.h"
#include "exportguard/ir/verify.h"
#include "graph_building.h"

namespace exportguard::ir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

// ------------------------------------------------------------------------------------------------ sources

TEST(Source, SaysModuleAndTheFilesName) {
  const Source source{"aten.add.Tensor", "model.layers.3.mlp", "LlamaMLP", "/site/modeling_llama.py", 123, ""};
  EXPECT_EQ(source.where(), "model.layers.3.mlp, modeling_llama.py:123");
}

TEST(Source, LeavesOutWhatIsUnknown) {
  EXPECT_EQ(Source{}.where(), "");
  EXPECT_EQ((Source{.module = "model"}).where(), "model");
  EXPECT_EQ((Source{.file = "a/b.py"}).where(), "b.py");
  EXPECT_EQ((Source{.file = "b.py", .line = 7}).where(), "b.py:7");
}

TEST(Intern, GivesEqualSourcesOneAddress) {
  const Source* first = intern({.module = "intern.same", .line = 1});
  EXPECT_EQ(first, intern({.module = "intern.same", .line = 1}));
  EXPECT_NE(first, intern({.module = "intern.same", .line = 2}));
}

TEST(Intern, MayBeCalledFromManyThreads) {
  std::vector<const Source*> found(8);
  {
    std::vector<std::jthread> threads;
    for (auto& slot : found) {
      threads.emplace_back([&slot] {
        for (int line = 0; line < 500; ++line) slot = intern({.module = "intern.threads", .line = line});
      });
    }
  }
  EXPECT_THAT(found, testing::Each(intern({.module = "intern.threads", .line = 499})));
}

// ------------------------------------------------------------------------------------------------ inputs, outputs

TEST(Inputs, KnowTheirPositionAfterOneIsErasedOrMoved) {
  Graph graph;
  Value& a = graph.add_input("a", {});
  graph.add_input("b", {});
  Value& c = graph.add_input("c", {});
  Value& d = graph.add_input("d", {});
  graph.erase_input(1);
  EXPECT_EQ(c.output_index(), 1u);
  graph.move_input(2, 0);
  EXPECT_EQ(d.output_index(), 0u);
  EXPECT_EQ(a.output_index(), 1u);
  EXPECT_EQ(&graph.input(2), &c);
  graph.move_input(0, 2);
  EXPECT_EQ(&graph.input(2), &d);
  EXPECT_EQ(d.output_index(), 2u);
}

TEST(Inputs, CannotBeErasedWhileTheyAreRead) {
  Graph graph;
  Value& x = graph.add_input("x", {});
  add(graph, "Neg", {&x}, "y");
  EXPECT_THAT([&] { graph.erase_input(0); }, ThrowsMessage<GraphError>("cannot erase %x: Neg %y reads it"));
}

TEST(Inputs, BeyondTheLastAreAnError) {
  const Graph graph;
  EXPECT_THAT([&] { graph.input(0); }, ThrowsMessage<GraphError>("graph 'main' has 0 inputs, no input 0"));
}

TEST(Outputs, MayBeNoneAndHaveNamesOfTheirOwn) {
  Graph graph;
  Value& x = graph.add_input("x", {});
  graph.add_output(&x, "first");
  graph.add_output(nullptr);
  graph.add_output(&x);
  EXPECT_EQ(graph.output_name(0), "first");
  EXPECT_EQ(graph.output_name(2), "");
  EXPECT_EQ(graph.find_output(1), nullptr);
  EXPECT_THAT([&] { graph.output(1); }, ThrowsMessage<GraphError>("output 1 of graph 'main' is None"));
  EXPECT_THAT([&] { graph.set_output_name(3, "z"); },
              ThrowsMessage<GraphError>("graph 'main' has 3 outputs, no output 3"));
}

TEST(Outputs, BehindAnErasedOneMoveUp) {
  Graph graph;
  Value& x = graph.add_input("x", {});
  Value& y = graph.add_input("y", {});
  graph.add_output(&x, "first");
  graph.add_output(&y, "second");
  graph.erase_output(0);
  EXPECT_TRUE(x.is_unused());
  EXPECT_THAT(graph.outputs(), ElementsAre(&y));
  EXPECT_EQ(graph.output_name(0), "second");
  EXPECT_EQ(y.uses().front()->index(), 0u);
}

// ------------------------------------------------------------------------------------------------ initializers

TEST(Initializers, OfOneNameAndMemoryAreOneValue) {
  Graph graph;
  const Tensor tensor = Tensor::ints({1, 2});
  Value& first = graph.add_initializer("w", tensor);
  EXPECT_EQ(&first, &graph.add_initializer("w", tensor));
  EXPECT_EQ(first.type(), Type::tensor(DType::kInt64, Shape{2}));
  EXPECT_FALSE(first.is_input());
}

TEST(Initializers, OfOneNameAndOtherMemoryAreAnError) {
  Graph graph;
  graph.add_initializer("w", Tensor::ints({1, 2}));
  EXPECT_THAT([&] { graph.add_initializer("w", Tensor::ints({1, 2})); },
              ThrowsMessage<GraphError>("graph 'main' has another initializer named 'w'; choose another name"));
}

TEST(Initializers, AreFoundUnderTheNameTheyWereGivenLast) {
  Graph graph;
  Value& value = graph.add_initializer("w", Tensor::ints({1}));
  value.set_name("v");
  EXPECT_EQ(graph.find_initializer("v"), &value);
  EXPECT_EQ(graph.find_initializer("w"), nullptr);
  graph.add_initializer("w", Tensor::ints({2}));
  EXPECT_THROW(value.set_name("w"), GraphError);
}

TEST(Initializers, ThatNobodyReadsCanBeErased) {
  Graph graph;
  graph.add_initializer("unused", Tensor::ints({1}));
  Value& used = graph.add_initializer("used", Tensor::ints({2}));
  add(graph, "Neg", {&used});
  graph.erase_unused_initializers();
  EXPECT_EQ(graph.initializers().size(), 1u);
  EXPECT_EQ(graph.find_initializer("unused"), nullptr);
  EXPECT_EQ(graph.find_initializer("used"), &used);
}

// ------------------------------------------------------------------------------------------------ nodes

TEST(Nodes, HaveAQualifiedNameForEachLevel) {
  Graph graph;
  EXPECT_EQ(graph.append(onnx("MatMul", {})).qualified_name(), "MatMul");
  EXPECT_EQ(graph.append({.domain = "com.microsoft", .op = "Gelu"}).qualified_name(), "com.microsoft::Gelu");
  EXPECT_EQ(graph.append({.domain = "aten", .op = "add.Tensor", .is_torch = true}).qualified_name(), "aten.add.Tensor");
}

TEST(Nodes, SayWhichOperandIsMissing) {
  Graph graph;
  Node& node = graph.append(onnx("Clip", {nullptr}));
  node.output().set_name("y");
  node.set_source(intern({.module = "model.act", .file = "/x/act.py", .line = 4}));
  EXPECT_THAT([&] { node.input(0); },
              ThrowsMessage<GraphError>("Clip %y (model.act, act.py:4): operand 0 is left out"));
  EXPECT_THAT([&] { node.input(2); },
              ThrowsMessage<GraphError>("Clip %y (model.act, act.py:4) has 1 operands, no operand 2"));
  EXPECT_THAT([&] { node.output(1); }, ThrowsMessage<GraphError>("Clip has 1 outputs, no output 1"));
}

TEST(Nodes, ReplaceAnAttributeOfTheSameName) {
  Graph graph;
  Node& node = graph.append(onnx("Softmax", {}));
  node.set_attribute("axis", std::int64_t{1});
  node.set_attribute("axis", std::int64_t{-1});
  EXPECT_EQ(std::get<std::int64_t>(node.attribute("axis")), -1);
  node.remove_attribute("axis");
  EXPECT_EQ(node.find_attribute("axis"), nullptr);
  EXPECT_THAT([&] { node.attribute("axis"); }, ThrowsMessage<GraphError>("Softmax has no attribute 'axis'"));
}

TEST(Nodes, AreTheParentsOfTheGraphsAmongTheirAttributes) {
  Graph graph;
  NodeSpec spec = onnx("If", {});
  spec.attributes.emplace_back("then_branch", std::make_unique<Graph>("then"));
  Node& node = graph.append(std::move(spec));
  node.set_attribute("else_branch", std::make_unique<Graph>("else"));
  EXPECT_EQ(node.subgraph("then_branch").parent(), &node);
  EXPECT_EQ(node.subgraph("else_branch").parent(), &node);
  EXPECT_THAT(node.subgraphs(), ElementsAre(&node.subgraph("then_branch"), &node.subgraph("else_branch")));
  EXPECT_THAT([&] { node.set_attribute("x", std::unique_ptr<Graph>()); },
              ThrowsMessage<GraphError>(HasSubstr("is a null graph")));
}

TEST(Nodes, ThatReadFromAGraphTheyCannotSeeAreRefused) {
  Graph graph;
  Node& branch = graph.append(onnx("If", {}));
  branch.set_attribute("then_branch", std::make_unique<Graph>("then"));
  Value& inner = add(branch.subgraph("then_branch"), "Neg", {}, "inner");
  EXPECT_THAT([&] { add(graph, "Abs", {&inner}); },
              ThrowsMessage<GraphError>(
                  "graph 'main' cannot read %inner: it is defined in graph 'then', which does not enclose it"));
  EXPECT_EQ(graph.node_count(), 1u);
  EXPECT_TRUE(inner.is_unused());
}

TEST(Nodes, CanBePutBeforeAndBehindOthers) {
  Graph graph;
  Node& middle = graph.append(onnx("Neg", {}));
  graph.insert_before(middle, onnx("Abs", {}));
  graph.insert_after(middle, onnx("Exp", {}));
  EXPECT_THAT(operators(graph), ElementsAre("Abs", "Neg", "Exp"));
  EXPECT_EQ(middle.previous()->op(), "Abs");
  EXPECT_EQ(middle.next()->op(), "Exp");
  graph.move_before(*graph.last(), *graph.first());
  EXPECT_THAT(operators(graph), ElementsAre("Exp", "Abs", "Neg"));
  EXPECT_EQ(graph.last(), &middle);
}

TEST(Nodes, CannotBePutBesideANodeOfAnotherGraph) {
  Graph graph;
  Graph other("other");
  Node& node = other.append(onnx("Neg", {}));
  EXPECT_THAT([&] { graph.insert_before(node, onnx("Abs", {})); },
              ThrowsMessage<GraphError>("Neg is not a node of graph 'main'"));
  other.erase(node);
  EXPECT_THAT([&] { other.insert_before(node, onnx("Abs", {})); },
              ThrowsMessage<GraphError>("Neg was erased from graph 'other'"));
}

// ------------------------------------------------------------------------------------------------ erasing

TEST(Erase, IsRefusedWhileAnOutputIsRead) {
  Graph graph;
  Value& x = add(graph, "Neg", {}, "x");
  graph.add_output(&x);
  EXPECT_THAT([&] { graph.erase(*x.producer()); },
              ThrowsMessage<GraphError>("cannot erase Neg %x: return reads its output 0"));
  EXPECT_EQ(graph.node_count(), 1u);
}

TEST(Erase, KeepsTheNodeUntilTheSweepAndFreesItsOperands) {
  Graph graph;
  Value& x = graph.add_input("x", {});
  Node& node = graph.append(onnx("Neg", {&x}));
  graph.erase(node);
  EXPECT_TRUE(node.is_erased());
  EXPECT_EQ(node.op(), "Neg");
  EXPECT_TRUE(x.is_unused());
  EXPECT_TRUE(graph.is_empty());
  EXPECT_THAT([&] { add(graph, "Abs", {&node.output()}); },
              ThrowsMessage<GraphError>(HasSubstr("its node was erased")));
  graph.sweep();
  EXPECT_EQ(graph.node_count(), 0u);
}

TEST(Sweep, LetsNewNodesHaveTheMemoryOfErasedOnes) {
  Graph graph;
  Value& x = graph.add_input("x", {});
  for (int k = 0; k < 1000; ++k) add(graph, "Neg", {&x});
  std::set<const Node*> erased;
  for (Node& node : graph) {
    erased.insert(&node);
    graph.erase(node);
  }
  graph.sweep();
  for (int k = 0; k < 1000; ++k) EXPECT_TRUE(erased.contains(&graph.append(onnx("Abs", {&x})))) << k;
}

TEST(Erase, FreesWhatNestedGraphsCaptured) {
  Graph graph;
  Value& x = graph.add_input("x", {});
  Node& branch = graph.append(onnx("If", {}));
  branch.set_attribute("then_branch", std::make_unique<Graph>("then"));
  Graph& nested = branch.subgraph("then_branch");
  add(nested, "Neg", {&x});
  nested.add_output(&x);
  graph.erase(branch);
  EXPECT_TRUE(x.is_unused());
  EXPECT_EQ(nested.output_count(), 0u);
}

TEST(EraseDeadNodes, TakesWholeChainsAndKeepsWhatIsRead) {
  Graph graph;
  Value& x = graph.add_input("x", {});
  Value& kept = add(graph, "Neg", {&x});
  add(graph, "Exp", {&add(graph, "Abs", {&kept})});
  graph.add_output(&kept);
  EXPECT_EQ(graph.erase_dead_nodes(), 2u);
  EXPECT_THAT(operators(graph), ElementsAre("Neg"));
}

TEST(EraseDeadNodes, KeepsNodesWithoutOutputs) {
  Graph graph;
  NodeSpec assertion{
      .domain = "aten", .op = "_assert_async.msg", .inputs = {&add(graph, "Abs", {})}, .outputs = {}, .is_torch = true};
  graph.append(std::move(assertion));
  EXPECT_EQ(graph.erase_dead_nodes(), 0u);
}

TEST(EraseDeadNodes, WorksInNestedGraphsAndFreesWhatTheyAloneRead) {
  Graph graph;
  Value& only_nested = add(graph, "Abs", {});
  Node& branch = graph.append(onnx("If", {}));
  graph.add_output(&branch.output());
  branch.set_attribute("then_branch", std::make_unique<Graph>("then"));
  add(branch.subgraph("then_branch"), "Neg", {&only_nested});
  EXPECT_EQ(graph.erase_dead_nodes(), 2u);
  EXPECT_THAT(operators(graph), ElementsAre("If"));
}

// ------------------------------------------------------------------------------------------------ order

TEST(Order, HoldsAfterManyInsertionsAtOnePlace) {
  Graph graph;
  Node& first = graph.append(onnx("First", {}));
  Node& last = graph.append(onnx("Last", {}));
  const Node* previous = &first;
  for (int i = 0; i < 200; ++i) {
    const Node& made = graph.insert_before(last, onnx("Middle", {}));
    EXPECT_TRUE(previous->is_before(made));
    EXPECT_TRUE(made.is_before(last));
    EXPECT_FALSE(last.is_before(made));
    previous = &made;
  }
  graph.move_before(last, first);
  EXPECT_TRUE(last.is_before(first));
  EXPECT_FALSE(first.is_before(first));
}

TEST(Order, IsNotAskedAcrossGraphs) {
  Graph a("a");
  Graph b("b");
  Node& first = a.append(onnx("Neg", {}));
  Node& second = b.append(onnx("Abs", {}));
  EXPECT_THAT([&] { static_cast<void>(first.is_before(second)); },
              ThrowsMessage<GraphError>("Neg and Abs have no order: they are in different graphs"));
}

// ------------------------------------------------------------------------------------------------ iteration

Graph& three_nodes(Graph& graph) {
  for (const char* op : {"A", "B", "C"}) graph.append(onnx(op, {}));
  return graph;
}

TEST(Iteration, SurvivesTheErasureOfTheNodeItStandsOn) {
  Graph graph;
  std::vector<std::string> visited;
  for (Node& node : three_nodes(graph)) {
    visited.push_back(node.op());
    graph.erase(node);
  }
  EXPECT_THAT(visited, ElementsAre("A", "B", "C"));
  EXPECT_TRUE(graph.is_empty());
}

TEST(Iteration, SkipsNodesErasedBeforeTheyWereReached) {
  Graph graph;
  std::vector<std::string> visited;
  for (Node& node : three_nodes(graph)) {
    visited.push_back(node.op());
    if (node.op() == "A") graph.erase(*node.next());
  }
  EXPECT_THAT(visited, ElementsAre("A", "C"));
}

TEST(Iteration, SurvivesTheErasureOfTheNodeAndAllBehindIt) {
  Graph graph;
  three_nodes(graph);
  NodeIterator iterator = graph.begin();
  Node* second = iterator->next();
  graph.erase(*iterator);
  graph.erase(*second);
  EXPECT_EQ((++iterator)->op(), "C");
  graph.erase(*iterator);
  EXPECT_EQ(++iterator, graph.end());
}

TEST(Iteration, VisitsWhatIsInsertedBehindItAndNotWhatIsInsertedBefore) {
  Graph graph;
  std::vector<std::string> visited;
  for (Node& node : three_nodes(graph)) {
    visited.push_back(node.op());
    if (node.op() != "B") continue;
    graph.insert_before(node, onnx("Before", {}));
    graph.insert_after(node, onnx("Behind", {}));
    graph.append(onnx("End", {}));
  }
  EXPECT_THAT(visited, ElementsAre("A", "B", "Behind", "C", "End"));
}

TEST(Iteration, AllowsANodeToBeReplacedByOthers) {
  Graph graph;
  Value& x = graph.add_input("x", {});
  graph.add_output(&add(graph, "Gelu", {&add(graph, "Gelu", {&x})}));
  for (Node& node : graph) {
    if (node.op() != "Gelu") continue;
    Value& erf = graph.insert_before(node, onnx("Erf", {&node.input(0)})).output();
    Value& product = graph.insert_before(node, onnx("Mul", {&erf, &node.input(0)})).output();
    node.output().replace_all_uses_with(product);
    graph.erase(node);
  }
  EXPECT_THAT(operators(graph), ElementsAre("Erf", "Mul", "Erf", "Mul"));
  EXPECT_NO_THROW(verify(graph));
}

}  // namespace
}  // namespace exportguard::ir
