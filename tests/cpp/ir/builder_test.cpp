#include "exportguard/ir/builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "exportguard/common/errors.h"
#include "exportguard/ir/text.h"
#include "exportguard/ir/verify.h"

namespace exportguard::ir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Model model_of(std::string_view graph, int opset = 22) {
  Model model;
  model.graph = parse_graph(graph);
  model.opsets[""] = opset;
  return model;
}

TEST(Builder, WritesInFrontOfANodeWithItsSource) {
  Model model = model_of(R"(
    graph(%x: f32[n,4]):
      %a: f32[n,4] = Relu(%x)
      %y: f32[n,4] = Tanh(%a)
      return (%y))");
  Node& tanh = *model.graph->last();
  tanh.set_source(intern({.module = "model.act", .file = "net.py", .line = 7}));
  Builder builder(model, tanh);
  Value* made = builder.op("Add", {&tanh.input(0), builder.constant(1.0, DType::kFloat32)});
  tanh.output().replace_all_uses_with(*made);
  model.graph->erase(tanh);
  verify(model);
  EXPECT_EQ(made->type().str(), "f32[n,4]");
  EXPECT_EQ(made->producer()->source()->where(), "model.act, net.py:7");
  EXPECT_THAT(print(*model.graph), HasSubstr("Add(%a, %constant.f32.1)"));
}

TEST(Builder, SharesConstantsWithOneBeforeIt) {
  Model model = model_of("graph(%x: f32[2]):\n  return (%x)");
  Value* first = Builder(model).ints({1, 2});
  EXPECT_EQ(Builder(model).ints({1, 2}), first);
  EXPECT_NE(Builder(model).ints({2, 1}), first);
}

TEST(Builder, LeavesAParameterOfAConstantsNameAlone) {
  Model model = model_of("graph(%x: f32[2], %constant.f32.1: f32[] = {5.0}):\n  return (%x)");
  const Value* made = Builder(model).constant(1.0, DType::kFloat32);
  EXPECT_EQ(made->initializer()->to_doubles().front(), 1.0);
}

TEST(Builder, ComputesASizeOnceInNestedGraphsToo) {
  Model model = model_of("graph(%x: f32[a,b], %c: bool[]):\n  return (%x)");
  Builder builder(model);
  Value* outer = builder.dim_value(SymExpr::symbol("a") * SymExpr::symbol("b"));
  Graph body("then");
  const Builder::Inside inside(builder, body);
  EXPECT_EQ(builder.dim_value(SymExpr::symbol("b") * SymExpr::symbol("a")), outer);
  EXPECT_TRUE(body.is_empty());
}

TEST(Builder, OfAFunctionKeepsItsConstantsThere) {
  Model model = model_of("graph(%x: f32[a]):\n  return (%x)");
  model.opsets["own"] = 1;
  Function function{"own", "Shifted", {}, std::make_unique<Graph>("Shifted"), {{"", 20}}};
  function.body->add_input("x", Type::tensor(DType::kFloat32, Shape{SymExpr::symbol("a")}));
  model.functions.push_back(std::move(function));
  Builder builder(model, model.functions.back());
  Graph& body = *model.functions.back().body;
  Value* sum = builder.op("Add", {&body.input(0), builder.constant(2.0, DType::kFloat32)});
  body.add_output(sum);
  verify(model);
  EXPECT_EQ(builder.opset(), 20);
  EXPECT_TRUE(model.graph->initializers().empty());
  EXPECT_EQ(body.initializers().size(), 1U);
  Builder main(model);
  EXPECT_EQ(main.op_in("own", "Shifted", {&model.graph->input(0)})->type().str(), "f32[a]");
}

TEST(Builder, InsideAFunctionSeesNothingAround) {
  Model model = model_of("graph(%x: f32[a]):\n  return (%x)");
  Builder builder(model);
  Value* outer = builder.dim_value(SymExpr::symbol("a"));
  Function function{"own", "F", {}, std::make_unique<Graph>("F"), {}};
  Value& input = function.body->add_input("x", Type::tensor(DType::kFloat32, Shape{SymExpr::symbol("a")}));
  const Builder::Inside inside(builder, function);
  Value* inner = builder.dim_value(SymExpr::symbol("a"));
  EXPECT_NE(inner, outer);
  EXPECT_EQ(&inner->producer()->input(0), &input);
}

TEST(Builder, OfANestedPlaceReadsSizesAroundIt) {
  Model model = model_of(R"(
    graph(%c: bool[], %x: f32[n,4]):
      %y = If(%c) {then_branch=graph():
          %a: f32[n,4] = Relu(%x)
          return (%a), else_branch=graph():
          %b: f32[n,4] = Tanh(%x)
          return (%b)}
      return (%y))");
  Node& relu = *model.graph->first()->subgraph("then_branch").first();
  Builder builder(model, relu);
  Value* rows = builder.dim_value(SymExpr::symbol("n"));
  EXPECT_EQ(&rows->producer()->graph(), &relu.graph());
  EXPECT_EQ(&builder.ints({3})->graph(), model.graph.get());
  verify(model);
}

TEST(Builder, SaysWhatIsWrongAndLeavesTheGraph) {
  Model model = model_of("graph(%x: f32[2,3], %w: f32[4,5]):\n  return (%x)");
  Builder builder(model);
  builder.set_source(intern({.module = "fc", .file = "net.py", .line = 3}));
  try {
    builder.op("MatMul", {&model.graph->input(0), &model.graph->input(1)});
    FAIL() << "nothing was refused";
  } catch (const GraphError& error) {
    EXPECT_STREQ(error.what(), "MatMul (fc, net.py:3): the inner sizes must be equal, got 3 and 4");
  }
  EXPECT_TRUE(model.graph->is_empty());
  EXPECT_THROW(builder.size(&model.graph->input(0), 5), GraphError);
}

TEST(Builder, InfersALoopWhenItsBodyIsThere) {
  Model model = model_of("graph(%n: i64[], %x: f32[rows,4]):\n  return (%x)");
  Builder builder(model);
  const std::vector<Value*> outputs =
      builder.op_many("Loop", {&model.graph->input(0), builder.constant(true, DType::kBool), &model.graph->input(1)}, 1,
                      {{"body", std::make_unique<Graph>("body")}});
  Node& loop = *outputs.front()->producer();
  Graph& body = loop.subgraph("body");
  body.add_input("i", Type::tensor(DType::kInt64, Shape{}));
  Value& go = body.add_input("go", Type::tensor(DType::kBool, Shape{}));
  Value& state = body.add_input("state", model.graph->input(1).type());
  {
    const Builder::Inside inside(builder, body);
    body.add_output(builder.op("Identity", {&go}));
    body.add_output(builder.op("Tanh", {&state}));
  }
  builder.infer_again(loop);
  EXPECT_EQ(outputs.front()->type().str(), "f32[rows,4]");
}

TEST(Builder, ReshapeCopiesWhatStaysAndReadsNoSize) {
  Model model = model_of("graph(%x: f32[batch,seq,4,8]):\n  return (%x)");
  Builder builder(model);
  Value* x = &model.graph->input(0);
  Value* made = builder.reshape(x, {Size(builder.dim_of(x, 0)), Size(builder.dim_of(x, 1)), Size(-1)});
  model.graph->set_output(0, made);
  model.graph->erase_dead_nodes();
  EXPECT_EQ(made->type().str(), "f32[batch,seq,32]");
  EXPECT_THAT(print(*model.graph), Not(HasSubstr("Shape(")));
}

}  // namespace
}  // namespace exportguard::ir
