#include "exportguard/evaluator/evaluator.h"

#include <gmock/gmock.h>

#include "exportguard/evaluator/interruption.h"
#include "exportguard/ir/text.h"

namespace exportguard::evaluator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

std::vector<double> numbers(const Value& value) { return value.tensor().to_doubles(); }

TEST(Evaluator, RunsNodesInOrder) {
  const ir::Model model = ir::parse_model(R"(opset 22
graph(%x: f32[n], %w: f32[2] = {2, 3}):
  %a = Mul(%x, %w)
  %b = Neg(%a)
  return (%a, %b, %x))");
  const Value x = ir::Tensor::filled(5, DType::kFloat32, std::vector<std::int64_t>{2});
  const std::vector<Value> outputs = run(model, {{x}});
  EXPECT_THAT(numbers(outputs[0]), ElementsAre(10, 15));
  EXPECT_THAT(numbers(outputs[1]), ElementsAre(-10, -15));
  EXPECT_THAT(numbers(outputs[2]), ElementsAre(5, 5));
}

TEST(Evaluator, ALoopReadsWhatIsAroundItAndCollects) {
  const ir::Model model = ir::parse_model(R"(opset 22
graph(%x: f32[], %n: i64[] = {3}):
  %last, %all = Loop(%n, _, %x) {body=graph(%i: i64[], %c: bool[], %s: f32[]):
      %t = Add(%s, %x)
      return (%c, %t, %t)}
  return (%last, %all))");
  const std::vector<Value> outputs = run(model, {{ir::Tensor::scalar(2.0, DType::kFloat32)}});
  EXPECT_THAT(numbers(outputs[0]), ElementsAre(8));
  EXPECT_THAT(numbers(outputs[1]), ElementsAre(4, 6, 8));
}

TEST(Evaluator, AFunctionHasAFrameOfItsOwn) {
  const ir::Model model = ir::parse_model(R"(opset 22
opset local 1
graph(%x: f32[]):
  %y = local::Twice(%x)
  %z = local::Twice(%y)
  return (%z)
function local::Twice(%a) opsets(22):
  %b = Add(%a, %a)
  return (%b))");
  EXPECT_THAT(numbers(run(model, {{ir::Tensor::scalar(2.0, DType::kFloat32)}})[0]), ElementsAre(8));
}

TEST(Evaluator, TorchOperatorsRunThroughTheDispatcher) {
  const ir::Model model = ir::parse_model(R"(opset 22
graph(%x: f32[n,2]):
  %n: int{n} = aten.sym_size.int(%x, 0)
  %m: int{n + 1} = operator.add(%n, 1)
  %a: f32[n,2] = aten.add.Tensor(%x, 2.5)
  %c: f32[2*n,2] = aten.cat.default([%a, %x], 0)
  %s: f32[2] = aten.sum.dim_IntList(%c, [0])
  return (%m, %s))");
  const std::vector<Value> outputs =
      run(model, {{ir::Tensor::filled(1, DType::kFloat32, std::vector<std::int64_t>{3, 2})}});
  EXPECT_THAT(numbers(outputs[0]), ElementsAre(4));
  EXPECT_THAT(numbers(outputs[1]), ElementsAre(13.5, 13.5));
}

TEST(Evaluator, AnObserverSeesEachValueAsItIsMade) {
  const ir::Model model = ir::parse_model("opset 22\ngraph(%x: f32[]):\n  %a = Neg(%x)\n  %b = Abs(%a)\n  return (%b)");
  std::vector<std::string> names;
  run(model, {{ir::Tensor::scalar(2.0, DType::kFloat32)}},
      {.observer = [&](const ir::Value& value, const Value&) { names.push_back(value.name()); }});
  EXPECT_THAT(names, ElementsAre("a", "b"));
}

auto refuses(const std::string& text) { return ThrowsMessage<EvaluationError>(HasSubstr(text)); }

TEST(Evaluator, ARunGoesOnANodeAtATime) {
  const ir::Model model = ir::parse_model(R"(opset 22
graph(%x: f32[]):
  %a = Neg(%x)
  %b = Exp(%a)
  return (%b))");
  std::vector<std::string> made;
  const auto note = [&](const ir::Value& value, const Value&) { made.push_back(value.name()); };
  const Program program(model, {.device = "cpu", .observer = note, .substitute = {}});
  const Value x = ir::Tensor::scalar(0.0, DType::kFloat32);
  evaluator::Run one(program, {{x}});
  EXPECT_THAT(made, IsEmpty());
  EXPECT_TRUE(one.advance());
  EXPECT_THAT(made, ElementsAre("a"));
  evaluator::Run other(program, {{x}});
  EXPECT_THAT(numbers(other.outputs().front()), ElementsAre(1));
  EXPECT_TRUE(one.advance());
  EXPECT_FALSE(one.advance());
  EXPECT_THAT(numbers(one.outputs().front()), ElementsAre(1));
  EXPECT_THAT(made, ElementsAre("a", "a", "b", "b"));
}

TEST(Evaluator, AnErrorNamesTheNodeAndItsInputs) {
  const ir::Model model = ir::parse_model("opset 22\ngraph(%x: f32[n,m]):\n  %y = MatMul(%x, %x)\n  return (%y)");
  const Value x = ir::Tensor::filled(1, DType::kFloat32, std::vector<std::int64_t>{2, 3});
  EXPECT_THAT([&] { run(model, {{x}}); }, refuses("cannot run MatMul %y"));
  EXPECT_THAT([&] { run(model, {{x}}); }, refuses("its inputs are f32[2,3], f32[2,3]"));
}

TEST(Evaluator, EveryUnknownOperatorIsNamedBeforeARun) {
  const ir::Model model = ir::parse_model(R"(opset 22
graph(%x: f32[n]):
  %a = Nothing(%x)
  %b = other.domain::Thing(%a)
  return (%b))");
  EXPECT_THAT([&] { const Program program(model); }, refuses("Nothing, other.domain::Thing"));
}

TEST(Evaluator, InputsMustBeWhatTheGraphDeclares) {
  const ir::Model model = ir::parse_model("opset 22\ngraph(%x: f32[n,2]):\n  %y = Neg(%x)\n  return (%y)");
  const auto with = [&](ir::Tensor x) { return [&model, x] { run(model, {{Value(x)}}); }; };
  const std::vector<std::int64_t> wrong{3};
  EXPECT_THAT(with(ir::Tensor::filled(1, DType::kFloat32, wrong)),
              ThrowsMessage<InvalidArgument>(HasSubstr("input 'x' must be f32[n,2], got f32[3]")));
  EXPECT_THAT(with(ir::Tensor::filled(1, DType::kFloat64, std::vector<std::int64_t>{3, 2})),
              ThrowsMessage<InvalidArgument>(HasSubstr("got f64[3,2]")));
}

constexpr std::string_view kEndless = R"(opset 22
graph(%x: f32[2], %go: bool[] = {true}):
  %y = Loop(_, %go, %x) {body=graph(%i: i64[], %c: bool[], %v: f32[2]):
      %d = Identity(%c)
      %w = Neg(%v)
      return (%d, %w)}
  return (%y)
)";

TEST(Evaluator, WhatNeverEndsIsEndedFromOutside) {
  const ir::Model model = ir::parse_model(kEndless);
  const Value x(ir::Tensor::filled(1, DType::kFloat32, std::vector<std::int64_t>{2}));
  int asked = 0;
  const Interruptible scope([&asked] { return ++asked == 2; });
  EXPECT_THROW(run(model, {{x}}), Interrupted);
  EXPECT_EQ(asked, 2);
}

TEST(Evaluator, ViewsThatNoMachineHoldsAreAnError) {
  const ir::Model model = ir::parse_model(
      "opset 22\ngraph(%x: f32[2], %s: i64[2] = {4000000000000, 2}):\n  %y = Expand(%x, %s)\n  return (%y)");
  const Value x(ir::Tensor::filled(1, DType::kFloat32, std::vector<std::int64_t>{2}));
  EXPECT_THAT([&] { run(model, {{x}}); }, refuses("more than this machine can hold"));
}

TEST(Evaluator, SizesThatNoMachineHoldsAreAnError) {
  const ir::Model model = ir::parse_model(
      "opset 22\ngraph(%s: i64[2] = {4000000000, 4000000000}):\n  %y = ConstantOfShape(%s)\n  return (%y)");
  EXPECT_THAT([&] { run(model, {}); }, refuses("more than this machine can hold"));
}

TEST(Evaluator, TheLeastIntegerByMinusOneIsNoCrash) {
  const ir::Model model = ir::parse_model(R"(opset 22
graph(%a: i64[2] = {-9223372036854775808, 7}, %b: i64[2] = {-1, -1}):
  %q = Div(%a, %b)
  %r = Mod(%a, %b) {fmod=1}
  return (%q, %r))");
  const std::vector<Value> outputs = run(model, {});
  EXPECT_EQ(outputs[0].tensor().to_ints()[1], -7);
  EXPECT_THAT(outputs[1].tensor().to_ints(), ElementsAre(0, 0));
}

// ---------------------------------------------------------------- folding

std::optional<std::vector<ir::Tensor>> fold_first(std::string_view text) {
  static std::vector<std::unique_ptr<ir::Graph>> kept;
  kept.push_back(ir::parse_graph(text));
  return fold(*kept.back()->begin(), 22);
}

TEST(Fold, ComputesANodeOfConstants) {
  const auto folded = fold_first("graph(%a: i64[2] = {1, 2}):\n  %y = Add(%a, %a)\n  return (%y)");
  ASSERT_TRUE(folded);
  EXPECT_THAT(folded->front().to_ints(), ElementsAre(2, 4));
}

TEST(Fold, LeavesWhatIsNotConstantRandomOrWrong) {
  EXPECT_FALSE(fold_first("graph(%a: i64[2]):\n  %y = Add(%a, %a)\n  return (%y)"));
  EXPECT_FALSE(fold_first("graph(%a: f32[2] = {1, 2}):\n  %y = RandomNormalLike(%a)\n  return (%y)"));
  EXPECT_FALSE(fold_first("graph(%a: f32[2] = {1, 2}, %b: f32[3] = {1, 2, 3}):\n  %y = Add(%a, %b)\n  return (%y)"));
}

}  // namespace
}  // namespace exportguard::evaluator
