#include <gmock/gmock.h>

#include "exportguard/common/errors.h"
#include "importer/functional.h"

namespace exportguard::importer {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Functionalize, LeavesAGraphWithoutWritesAsItIs) {
  constexpr std::string_view graph = R"(
graph(%x: f32[batch,4]):
  %s: f32[batch,2] = aten.slice.Tensor(%x, 1, 0, 2)
  %y: f32[batch,2] = aten.relu.default(%s)
  return (%y))";
  EXPECT_EQ(functional(graph), ir::normalize(graph));
}

TEST(Functionalize, MakesAnInPlaceOperatorFunctional) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[2,3], %y: f32[2,3]):
  %a: f32[2,3] = aten.relu.default(%x)
  %b: f32[2,3] = aten.add_.Tensor(%a, %y)
  %c: f32[2,3] = aten.mul.Tensor(%a, %b)
  return (%c))"),
            ir::normalize(R"(
graph(%x: f32[2,3], %y: f32[2,3]):
  %a: f32[2,3] = aten.relu.default(%x)
  %b: f32[2,3] = aten.add.Tensor(%a, %y)
  %c: f32[2,3] = aten.mul.Tensor(%b, %b)
  return (%c))"));
}

TEST(Functionalize, ReadsBeforeAWriteSeeTheOldElements) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[2], %y: f32[2]):
  %a: f32[2] = aten.relu.default(%x)
  %before: f32[2] = aten.neg.default(%a)
  %b: f32[2] = aten.mul_.Tensor(%a, %y)
  %after: f32[2] = aten.neg.default(%a)
  return (%before, %after))"),
            ir::normalize(R"(
graph(%x: f32[2], %y: f32[2]):
  %a: f32[2] = aten.relu.default(%x)
  %before: f32[2] = aten.neg.default(%a)
  %b: f32[2] = aten.mul.Tensor(%a, %y)
  %after: f32[2] = aten.neg.default(%b)
  return (%before, %after))"));
}

TEST(Functionalize, ReturnsTheElementsAtTheEnd) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[2]):
  %a: f32[2] = aten.relu.default(%x)
  %v: f32[2] = aten.alias.default(%a)
  %b: f32[2] = aten.add_.Scalar(%a, 1)
  return (%a, %v))"),
            ir::normalize(R"(
graph(%x: f32[2]):
  %a: f32[2] = aten.relu.default(%x)
  %b: f32[2] = aten.add.Scalar(%a, 1)
  return (%b, %b))"));
}

TEST(Functionalize, GivesAWrittenInputAsOneMoreOutput) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[2]):
  %a: f32[2] = aten.add_.Tensor(%x, 1)
  %b: f32[2] = aten.neg.default(%x)
  return (%b))"),
            ir::normalize(R"(
graph(%x: f32[2]):
  %a: f32[2] = aten.add.Tensor(%x, 1)
  %b: f32[2] = aten.neg.default(%a)
  return (%b, %a as x_mutated))"));
}

TEST(Functionalize, GivesAWrittenBufferAsOneMoreOutput) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[2], %bn.count: i64[] = {0}):
  %n: i64[] = aten.add_.Tensor(%bn.count, 1)
  %y: f32[2] = aten.relu.default(%x)
  return (%y as logits))"),
            ir::normalize(R"(
graph(%x: f32[2], %bn.count: i64[] = {0}):
  %n: i64[] = aten.add.Tensor(%bn.count, 1)
  %y: f32[2] = aten.relu.default(%x)
  return (%y as logits, %n as bn.count_mutated))"));
}

TEST(Functionalize, GivesAWrittenInputOnceIfTheProgramReturnsIt) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[2]):
  %a: f32[2] = aten.add_.Tensor(%x, 1)
  return (%a as y))"),
            ir::normalize(R"(
graph(%x: f32[2]):
  %a: f32[2] = aten.add.Tensor(%x, 1)
  return (%a as y))"));
}

TEST(Functionalize, FitsACopyToTheShapeAndDtypeOfItsDestination) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[batch,3], %y: f64[3]):
  %a: f32[batch,3] = aten.relu.default(%x)
  %w: f32[batch,3] = aten.copy_.default(%a, %y)
  return (%a))"),
            ir::normalize(R"(
graph(%x: f32[batch,3], %y: f64[3]):
  %a: f32[batch,3] = aten.relu.default(%x)
  %0: f32[3] = aten.to.dtype(%y, dtype:f32)
  %w: f32[batch,3] = aten.expand_as.default(%0, %a)
  return (%w))"));
}

TEST(Functionalize, LeavesWhatWasCopiedAloneWhenTheCopyIsWritten) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[2,3]):
  %a: f32[2,3] = aten.empty_like.default(%x)
  %c: f32[2,3] = aten.copy_.default(%a, %x)
  %w: f32[2,3] = aten.mul_.Tensor(%c, 0.5)
  %s: f32[2,3] = aten.add.Tensor(%x, %w)
  return (%s, %a, %x))"),
            ir::normalize(R"(
graph(%x: f32[2,3]):
  %c: f32[2,3] = aten.clone.default(%x)
  %w: f32[2,3] = aten.mul.Tensor(%c, 0.5)
  %s: f32[2,3] = aten.add.Tensor(%x, %w)
  return (%s, %w, %x))"));
}

TEST(Functionalize, LeavesTheCopyAloneWhenWhatWasCopiedIsWritten) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[2,3]):
  %y: f32[2,3] = aten.relu.default(%x)
  %a: f32[2,3] = aten.empty_like.default(%x)
  %c: f32[2,3] = aten.copy_.default(%a, %y)
  %v: f32[3] = aten.select.int(%a, 0, 1)
  %w: f32[2,3] = aten.neg_.default(%y)
  %s: f32[2,3] = aten.add.Tensor(%v, %w)
  return (%s))"),
            ir::normalize(R"(
graph(%x: f32[2,3]):
  %y: f32[2,3] = aten.relu.default(%x)
  %c: f32[2,3] = aten.clone.default(%y)
  %v: f32[3] = aten.select.int(%c, 0, 1)
  %w: f32[2,3] = aten.neg.default(%y)
  %s: f32[2,3] = aten.add.Tensor(%v, %w)
  return (%s))"));
}

TEST(Functionalize, FillsWithANumberOrATensor) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[2,3], %v: f32[]):
  %a: f32[2,3] = aten.relu.default(%x)
  %s: f32[3] = aten.select.int(%a, 0, 0)
  %w: f32[3] = aten.fill_.Scalar(%s, 7)
  %t: f32[3] = aten.select.int(%a, 0, 1)
  %z: f32[3] = aten.fill_.Tensor(%t, %v)
  return (%a))"),
            ir::normalize(R"(
graph(%x: f32[2,3], %v: f32[]):
  %a: f32[2,3] = aten.relu.default(%x)
  %s: f32[3] = aten.select.int(%a, 0, 0)
  %w: f32[3] = aten.full_like.default(%s, 7)
  %0: f32[2,3] = aten.select_scatter.default(%a, %w, 0, 0)
  %t: f32[3] = aten.select.int(%0, 0, 1)
  %z: f32[3] = aten.expand_as.default(%v, %t)
  %1: f32[2,3] = aten.select_scatter.default(%0, %z, 0, 1)
  return (%1))"));
}

TEST(Functionalize, KeepsTheDtypeOfATensorThatIsWritten) {
  EXPECT_EQ(functional(R"(
graph(%x: f16[3], %y: f32[3]):
  %a: f16[3] = aten.relu.default(%x)
  %w: f16[3] = aten.add_.Tensor(%a, %y)
  %b: i64[3] = aten.ones.default([3], dtype:i64)
  %z: i64[3] = aten.gt_.Scalar(%b, 0)
  return (%a, %b))"),
            ir::normalize(R"(
graph(%x: f16[3], %y: f32[3]):
  %a: f16[3] = aten.relu.default(%x)
  %0: f32[3] = aten.add.Tensor(%a, %y)
  %w: f16[3] = aten.to.dtype(%0, dtype:f16)
  %b: i64[3] = aten.ones.default([3], dtype:i64)
  %1: bool[3] = aten.gt.Scalar(%b, 0)
  %z: i64[3] = aten.to.dtype(%1, dtype:i64)
  return (%w, %z))"));
}

TEST(Functionalize, DoesNotConvertWhereANumberDoesNotPromote) {
  EXPECT_EQ(functional(R"(
graph(%x: f16[3], %n: int{n}):
  %a: f16[3] = aten.relu.default(%x)
  %w: f16[3] = aten.mul_.Scalar(%a, 2.5)
  %z: f16[3] = aten.add_.Tensor(%a, %n)
  return (%a))"),
            ir::normalize(R"(
graph(%x: f16[3], %n: int{n}):
  %a: f16[3] = aten.relu.default(%x)
  %w: f16[3] = aten.mul.Scalar(%a, 2.5)
  %z: f16[3] = aten.add.Tensor(%w, %n)
  return (%z))"));
}

TEST(Functionalize, PutsIndicesIntoABase) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[4,3], %i: i64[2], %y: f32[2,3]):
  %a: f32[4,3] = aten.relu.default(%x)
  %w: f32[4,3] = aten.index_put_.default(%a, [%i], %y)
  %z: f32[4,3] = aten.masked_fill_.Scalar(%a, %a, 0)
  return (%a))"),
            ir::normalize(R"(
graph(%x: f32[4,3], %i: i64[2], %y: f32[2,3]):
  %a: f32[4,3] = aten.relu.default(%x)
  %w: f32[4,3] = aten.index_put.default(%a, [%i], %y)
  %z: f32[4,3] = aten.masked_fill.Scalar(%w, %w, 0)
  return (%z))"));
}

TEST(Functionalize, WritesTheResultOfAnOutVariant) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[3], %y: f32[3], %o: f32[3]):
  %w: f32[3] = aten.add.out(%x, %y, 2, %o)
  %z: f32[3] = aten.neg.default(%o)
  return (%z))"),
            ir::normalize(R"(
graph(%x: f32[3], %y: f32[3], %o: f32[3]):
  %w: f32[3] = aten.add.Tensor(%x, %y, 2)
  %z: f32[3] = aten.neg.default(%w)
  return (%z, %w as o_mutated))"));
}

TEST(Functionalize, WritesBothResultsOfAnOutVariant) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[3], %v: f32[2], %i: i64[2]):
  %a: f32[2] = aten.relu.default(%v)
  %p: f32[2], %q: i64[2] = aten.topk.values(%x, 2, -1, true, true, %a, %i)
  return (%a, %q))"),
            ir::normalize(R"(
graph(%x: f32[3], %v: f32[2], %i: i64[2]):
  %p: f32[2], %0: i64[2] = aten.topk.default(%x, 2, -1, true, true)
  return (%p, %0))"));
}

TEST(Functionalize, KeepsFreshResultsBesideWrittenBuffers) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[2,3], %m: f32[3], %v: f32[3]):
  %y: f32[2,3], %s: f32[3], %t: f32[3] = aten._native_batch_norm_legit.default(%x, None, None, %m, %v, true, 0.1, 1e-05)
  return (%y, %s))"),
            ir::normalize(R"(
graph(%x: f32[2,3], %m: f32[3], %v: f32[3]):
  %0: f32[2,3], %1: f32[3], %2: f32[3], %3: f32[3], %4: f32[3] = aten._native_batch_norm_legit_functional.default(%x, None, None, %m, %v, true, 0.1, 1e-05)
  return (%0, %1, %3 as m_mutated, %4 as v_mutated))"));
}

TEST(Functionalize, LeavesACloneAlone) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[3]):
  %a: f32[3] = aten.clone.default(%x)
  %w: f32[3] = aten.mul_.Scalar(%a, 2)
  %y: f32[3] = aten.add.Tensor(%x, %a)
  return (%y))"),
            ir::normalize(R"(
graph(%x: f32[3]):
  %a: f32[3] = aten.clone.default(%x)
  %w: f32[3] = aten.mul.Scalar(%a, 2)
  %y: f32[3] = aten.add.Tensor(%x, %w)
  return (%y))"));
}

TEST(Functionalize, DoesNestedGraphs) {
  EXPECT_EQ(functional(R"(
graph(%p: bool[], %x: f32[3]):
  %y: f32[3] = higher_order.cond(%p, None, None, [%x]) {true_fn=graph(%a: f32[3]):
      %b: f32[3] = aten.clone.default(%a)
      %c: f32[3] = aten.mul_.Scalar(%b, 2)
      return (%b), false_fn=graph(%d: f32[3]):
      return (%d)}
  return (%y))"),
            ir::normalize(R"(
graph(%p: bool[], %x: f32[3]):
  %y: f32[3] = higher_order.cond(%p, None, None, [%x]) {true_fn=graph(%a: f32[3]):
      %b: f32[3] = aten.clone.default(%a)
      %c: f32[3] = aten.mul.Scalar(%b, 2)
      return (%c), false_fn=graph(%d: f32[3]):
      return (%d)}
  return (%y))"));
}

TEST(Functionalize, GivesWhatABranchWritesIntoAnOperandAsAnOutputOfTheBranch) {
  EXPECT_EQ(functional(R"(
graph(%p: bool[], %x: f32[3]):
  %k: f32[3] = aten.clone.default(%x)
  %y: f32[3] = higher_order.cond(%p, None, None, [%k]) {true_fn=graph(%a: f32[3]):
      %c: f32[3] = aten.mul_.Scalar(%a, 2)
      %e: f32[3] = aten.neg.default(%a)
      return (%e), false_fn=graph(%d: f32[3]):
      %f: f32[3] = aten.exp.default(%d)
      return (%f)}
  %z: f32[3] = aten.add.Tensor(%y, %k)
  return (%z))"),
            ir::normalize(R"(
graph(%p: bool[], %x: f32[3]):
  %k: f32[3] = aten.clone.default(%x)
  %y: f32[3], %0: f32[3] = higher_order.cond(%p, None, None, [%k]) {true_fn=graph(%a: f32[3]):
      %c: f32[3] = aten.mul.Scalar(%a, 2)
      %e: f32[3] = aten.neg.default(%c)
      return (%e, %c), false_fn=graph(%d: f32[3]):
      %f: f32[3] = aten.exp.default(%d)
      return (%f, %d)}
  %z: f32[3] = aten.add.Tensor(%y, %0)
  return (%z))"));
}

TEST(Functionalize, PutsTheBodyOfAModeInItsPlace) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[3]):
  %k: f32[3] = aten.clone.default(%x)
  %y: f32[3] = higher_order.wrap_with_set_grad_enabled(false, None, %k) {body=graph(%a: f32[3]):
      %c: f32[3] = aten.mul_.Scalar(%a, 2)
      return (%c)}
  %z: f32[3] = aten.add.Tensor(%y, %k)
  return (%z))"),
            ir::normalize(R"(
graph(%x: f32[3]):
  %k: f32[3] = aten.clone.default(%x)
  %c: f32[3] = aten.mul.Scalar(%k, 2)
  %z: f32[3] = aten.add.Tensor(%c, %c)
  return (%z))"));
}

TEST(Functionalize, ConvertsWhatAutocastConverts) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[2,3], %w: f32[4,3]):
  %y: f16[2,4] = higher_order.wrap_with_autocast("cuda", dtype:f16, true, None, None, %x, %w) {body=graph(%a: f32[2,3], %b: f32[4,3]):
      %c: f16[2,4] = aten.linear.default(%a, %b)
      %d: f32[2,4] = aten.softmax.int(%c, -1)
      %e: f16[2,4] = aten.to.dtype(%d, dtype:f16)
      return (%e)}
  return (%y))"),
            ir::normalize(R"(
graph(%x: f32[2,3], %w: f32[4,3]):
  %0: f16[2,3] = aten.to.dtype(%x, dtype:f16)
  %1: f16[4,3] = aten.to.dtype(%w, dtype:f16)
  %c: f16[2,4] = aten.linear.default(%0, %1)
  %2: f32[2,4] = aten.to.dtype(%c, dtype:f32)
  %d: f32[2,4] = aten.softmax.int(%2, -1)
  %e: f16[2,4] = aten.to.dtype(%d, dtype:f16)
  return (%e))"));
}

TEST(Functionalize, WritesEachTensorOfAList) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[3], %y: f32[2]):
  %a: f32[3] = aten.clone.default(%x)
  %b: f32[2] = aten.clone.default(%y)
  aten._foreach_add_.Scalar([%a, %b], 1)
  return (%a, %b))"),
            ir::normalize(R"(
graph(%x: f32[3], %y: f32[2]):
  %a: f32[3] = aten.clone.default(%x)
  %b: f32[2] = aten.clone.default(%y)
  %0: f32[3], %1: f32[2] = aten._foreach_add.Scalar([%a, %b], 1)
  return (%0, %1))"));
}

TEST(Functionalize, RefusesAChangeOfSize) {
  EXPECT_THAT(
      [] {
        functional(R"(
graph(%x: f32[4]):
  %a: f32[4] = aten.relu.default(%x)
  %w: f32[8] = aten.resize_.default(%a, [8])
  return (%a))");
      },
      ThrowsMessage<ImportError>(HasSubstr(
          "cannot make aten.resize_.default functional: it changes the size of a tensor from f32[4] to f32[8]")));
}

TEST(Functionalize, RefusesALoopBodyThatWritesIntoAnOperand) {
  EXPECT_THAT(
      [] {
        functional(R"(
graph(%i: i64[], %x: f32[3]):
  %n: i64[], %y: f32[3] = higher_order.while_loop(None, None, [%i, %x], []) {cond_fn=graph(%a: i64[], %b: f32[3]):
      %l: bool[] = aten.lt.Scalar(%a, 3)
      return (%l), body_fn=graph(%c: i64[], %d: f32[3]):
      %e: i64[] = aten.add.Tensor(%c, 1)
      %f: f32[3] = aten.mul_.Scalar(%d, 2)
      return (%e, %f)}
  return (%y))");
      },
      ThrowsMessage<ImportError>(
          HasSubstr("cannot make higher_order.while_loop functional: its body writes into an operand")));
}

TEST(Functionalize, ReportsWritesAndExtraOutputs) {
  const auto graph = ir::parse_graph(R"(
graph(%x: f32[2], %b: f32[2] = {1.0, 2.0}):
  %a: f32[2] = aten.add_.Tensor(%x, %b)
  %c: f32[2] = aten.mul_.Scalar(%b, 2)
  return (%a))");
  const FunctionalizeReport report = functionalize(*graph);
  EXPECT_EQ(report.rewritten, 2U);
  EXPECT_EQ(report.extra_outputs, 1U);
}

TEST(Functionalize, NamesTheUserLineOfAWriteThatItRefuses) {
  const auto graph = ir::parse_graph(R"(
graph(%x: f32[1,3]):
  %e: f32[2,3] = aten.expand.default(%x, [2, 3])
  %w: f32[2,3] = aten.mul_.Scalar(%e, 2)
  return (%e))");
  graph->last()->set_source(ir::intern({.module = "model.layers.3", .file = "/home/model.py", .line = 12}));
  EXPECT_THAT([&] { functionalize(*graph); },
              ThrowsMessage<ImportError>(HasSubstr("aten.mul_.Scalar (model.layers.3, model.py:12)")));
}

}  // namespace
}  // namespace exportguard::importer
