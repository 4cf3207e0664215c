#include "exportguard/ir/inference.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "exportguard/common/errors.h"
#include "exportguard/ir/text.h"

namespace exportguard::ir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Model inferred(std::string_view graph, int opset = 22) {
  Model model;
  model.graph = parse_graph(graph);
  model.opsets[""] = opset;
  infer_model(model);
  return model;
}

/// Types of the outputs of a graph with these inputs and this body, whose last values are `%y…`.
std::vector<std::string> types(std::string_view inputs, std::string_view body, std::string_view outputs = "%y",
                               int opset = 22) {
  const Model model = inferred(fmt::format("graph({}):\n  {}\n  return ({})", inputs, body, outputs), opset);
  std::vector<std::string> result;
  for (const Value* value : model.graph->outputs()) result.push_back(value->type().str());
  return result;
}

std::string type(std::string_view inputs, std::string_view body) { return types(inputs, body).front(); }

std::string failure(std::string_view inputs, std::string_view body) {
  try {
    types(inputs, body);
  } catch (const GraphError& error) {
    return error.what();
  }
  return "nothing";
}

TEST(Inference, RefusesAnAxisThatStandsTwice) {
  const std::string_view inputs = "%x: f32[2,3,1], %axes: i64[2] = {2, -1}";
  EXPECT_EQ(failure(inputs, "%y = ReduceSum(%x, %axes) {keepdims=0}"), "ReduceSum: axes must be different");
  EXPECT_EQ(failure(inputs, "%y = Squeeze(%x, %axes)"), "Squeeze: axes must be different");
  EXPECT_EQ(failure(inputs, "%y = Transpose(%x) {perm=[0, 1, 1]}"), "Transpose: axes must be different");
  EXPECT_EQ(failure("%x: f32[2,3], %axes: i64[2] = {3, -1}", "%y = Unsqueeze(%x, %axes)"),
            "Unsqueeze: axes must be different");
}

TEST(Inference, BroadcastsElementwiseOperators) {
  EXPECT_EQ(type("%a: f32[batch,1,8], %b: f32[seq,1]", "%y = Add(%a, %b)"), "f32[batch,seq,8]");
  EXPECT_EQ(type("%a: f32[n], %b: f32[]", "%y = Less(%a, %b)"), "bool[n]");
  EXPECT_EQ(type("%a: f32[n], %b: f32[m]", "%y = Mul(%a, %b)"), "f32[_d0]");
  EXPECT_EQ(type("%c: bool[n,1], %a: f16[1,m], %b: f16[]", "%y = Where(%c, %a, %b)"), "f16[n,m]");
  EXPECT_EQ(type("%a: f32[n], %b: f32[*]", "%y = Add(%a, %b)"), "f32[*]");
}

TEST(Inference, ThatCannotBeRightIsRefused) {
  EXPECT_EQ(failure("%a: f32[3], %b: f32[4]", "%y = Add(%a, %b)"), "Add: sizes 3 and 4 do not broadcast");
  EXPECT_EQ(failure("%a: f32[2,3], %b: f32[4,5]", "%y = MatMul(%a, %b)"),
            "MatMul: the inner sizes must be equal, got 3 and 4");
  EXPECT_EQ(failure("%a: f32[n,3]", "%y = Softmax(%a) {axis=-1}\n  %z = Concat(%a, %y) {axis=2}"),
            "Concat: axis must be between -2 and 1 for rank 2, got 2");
  EXPECT_EQ(failure("%a: f32[2,3], %s: i64[2] = {4, 2}", "%y = Reshape(%a, %s)"),
            "Reshape: 6 elements cannot become 8");
}

TEST(Inference, FollowsSizesThroughShapeArithmetic) {
  EXPECT_EQ(type("%x: f32[batch,seq,4,8], %l: i64[1] = {-1}", R"(%s = Shape(%x) {start=0, end=2}
  %t = Concat(%s, %l) {axis=0}
  %y = Reshape(%x, %t))"),
            "f32[batch,seq,32]");
  EXPECT_EQ(type("%x: f32[batch,seq], %one: i64[] = {1}, %zero: i64[] = {0}", R"(%s = Shape(%x)
  %n = Gather(%s, %one) {axis=0}
  %r = Range(%zero, %n, %one)
  %y = Add(%r, %r))"),
            "i64[Max(0, seq)]");
  EXPECT_EQ(type("%x: f32[a,b], %two: i64[1] = {2}", R"(%s = Shape(%x)
  %h = Mul(%s, %two)
  %y = ConstantOfShape(%h))"),
            "f32[2*a,2*b]");
}

TEST(Inference, OfReshapeCopiesAndFindsTheRest) {
  EXPECT_EQ(type("%x: f32[batch,seq,32], %s: i64[4] = {0, 0, -1, 8}", "%y = Reshape(%x, %s)"), "f32[batch,seq,4,8]");
  EXPECT_EQ(type("%x: f32[batch,7], %s: i64[1] = {-1}", "%y = Reshape(%x, %s)"), "f32[7*batch]");
  EXPECT_EQ(type("%x: f32[n], %s: i64[3]", "%y = Reshape(%x, %s)"), "f32[_d0,_d1,_d2]");
}

TEST(Inference, OfSlicesCountsPositions) {
  const auto sliced = [](std::string_view size, int start, int end, int step) {
    return type(
        fmt::format("%x: f32[{}], %s: i64[1] = {{{}}}, %e: i64[1] = {{{}}}, %a: i64[1] = {{0}}, %t: i64[1] = {{{}}}",
                    size, start, end, step),
        "%y = Slice(%x, %s, %e, %a, %t)");
  };
  EXPECT_EQ(sliced("10", 2, 7, 2), "f32[3]");
  EXPECT_EQ(sliced("10", -3, 100, 1), "f32[3]");
  EXPECT_EQ(sliced("10", -1, -100, -1), "f32[10]");
  EXPECT_EQ(sliced("10", 7, 2, 1), "f32[0]");
  EXPECT_EQ(sliced("n", 0, 2147483647, 1), "f32[n]");
  EXPECT_EQ(sliced("n", 0, 4, 1), "f32[Min(4, n)]");
  EXPECT_EQ(sliced("n", 4, 2147483647, 1), "f32[Max(0, n - 4)]");
}

TEST(Inference, OfWindowsFloorsAndPads) {
  EXPECT_EQ(type("%x: f32[n,3,h,32], %w: f32[16,3,3,3]", "%y = Conv(%x, %w) {pads=[1,1,1,1], strides=[2,2]}"),
            "f32[n,16,FloorDiv(h + 1, 2),16]");
  EXPECT_EQ(type("%x: f32[n,3,7,7]", "%y = MaxPool(%x) {kernel_shape=[2,2], strides=[2,2], ceil_mode=1}"),
            "f32[n,3,4,4]");
  EXPECT_EQ(type("%x: f32[n,8,h,w], %w: f32[8,4,4,4]", "%y = ConvTranspose(%x, %w) {strides=[2,2], pads=[1,1,1,1]}"),
            "f32[n,4,2*h,2*w]");
}

TEST(Inference, KnowsWhatAttentionKeeps) {
  EXPECT_THAT(
      types("%q: f32[b,s,32], %k: f32[b,s,16], %v: f32[b,s,16], %pk: f32[b,2,past,8], %pv: f32[b,2,past,8]",
            "%y, %nk, %nv = Attention(%q, %k, %v, _, %pk, %pv) {q_num_heads=4, kv_num_heads=2}", "%y, %nk, %nv", 23),
      ElementsAre("f32[b,s,32]", "f32[b,2,past + s,8]", "f32[b,2,past + s,8]"));
}

TEST(Inference, OfTwoBranchesIsWhatBothGive) {
  EXPECT_EQ(type("%c: bool[], %x: f32[n,4]", R"(%y = If(%c) {then_branch=graph():
      %a = Relu(%x)
      return (%a), else_branch=graph():
      %b = Concat(%x, %x) {axis=0}
      return (%b)})"),
            "f32[_d0,4]");
}

TEST(Inference, OfALoopKeepsWhatTheStepKeeps) {
  EXPECT_THAT(types("%n: i64[], %c: bool[], %x: f32[batch,4]",
                    R"(%y, %all = Loop(%n, %c, %x) {body=graph(%i: i64[], %go: bool[], %s: f32[batch,4]):
      %t = Tanh(%s)
      %k = Identity(%go)
      %o = Identity(%t)
      return (%k, %t, %o)})",
                    "%y, %all"),
              ElementsAre("f32[batch,4]", "f32[_d0,batch,4]"));
}

TEST(Inference, OfACallInfersTheFunctionsBody) {
  Model model = parse_model(R"(
    opset 22
    opset own 1
    graph(%x: f32[batch,3], %w: f32[3,4]):
      %y = own::Dense(%x, %w)
      return (%y)
    function own::Dense(%a, %b) opsets(22):
      %m = MatMul(%a, %b)
      %r = Relu(%m)
      return (%r))");
  infer_model(model);
  EXPECT_EQ(model.graph->output(0).type().str(), "f32[batch,4]");
}

TEST(Inference, FreshSymbolsAreNoneOfTheModels) {
  const Model model = inferred(R"(
    graph(%x: f32[_d4]):
      %y = NonZero(%x)
      return (%y))");
  EXPECT_EQ(model.graph->output(0).type().str(), "i64[1,_d5]");
}

TEST(Inference, OfAnOperatorWithoutARowIsUnknown) { EXPECT_EQ(type("%x: f32[n]", "%y = own::Op(%x)"), Type{}.str()); }

TEST(InferenceTable, TakesOneRowForAnOperator) {
  InferenceTable table;
  const Inference nothing = [](InferenceContext&) {};
  table.add({"MatMul"}, nothing);
  try {
    table.add({"MatMul"}, nothing);
    FAIL() << "a second row was taken";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("MatMul has an inference already"));
  }
}

TEST(Inference, RangesOfTheLargestNumbersHaveALength) {
  const auto range = [](std::string_view limit, std::string_view delta) {
    return type(fmt::format("%a: i64[] = {{0}}, %b: i64[] = {{{}}}, %c: i64[] = {{{}}}", limit, delta),
                "%y = Range(%a, %b, %c)");
  };
  EXPECT_EQ(range("9223372036854775807", "9223372036854775807"), "i64[1]");
  EXPECT_EQ(range("-5", "-2"), "i64[3]");
  EXPECT_EQ(range("-5", "2"), "i64[0]");
  EXPECT_THAT(range("-9223372036854775808", "-1"), testing::StartsWith("i64["));
}

}  // namespace
}  // namespace exportguard::ir
