#include <gmock/gmock.h>

#include "exportguard/common/errors.h"
#include "importer/functional.h"

namespace exportguard::importer {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(FunctionalizeViews, ScattersAWriteIntoASlice) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[batch,4], %y: f32[batch,3]):
  %a: f32[batch,4] = aten.relu.default(%x)
  %s: f32[batch,4] = aten.slice.Tensor(%a, 0, 0, 9223372036854775807)
  %t: f32[batch,3] = aten.slice.Tensor(%s, 1, 1, 9223372036854775807)
  %c: f32[batch,3] = aten.copy_.default(%t, %y)
  return (%a))"),
            ir::normalize(R"(
graph(%x: f32[batch,4], %y: f32[batch,3]):
  %a: f32[batch,4] = aten.relu.default(%x)
  %c: f32[batch,3] = aten.clone.default(%y)
  %0: f32[batch,4] = aten.slice_scatter.default(%a, %c, 1, 1, 9223372036854775807)
  return (%0))"));
}

TEST(FunctionalizeViews, ScattersAWriteThroughAChainOfViews) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[2,3,4]):
  %a: f32[2,3,4] = aten.relu.default(%x)
  %s: f32[3,4] = aten.select.int(%a, 0, 1)
  %t: f32[4,3] = aten.transpose.int(%s, 0, 1)
  %u: f32[1,4,3] = aten.unsqueeze.default(%t, 0)
  %w: f32[1,4,3] = aten.neg_.default(%u)
  return (%a))"),
            ir::normalize(R"(
graph(%x: f32[2,3,4]):
  %a: f32[2,3,4] = aten.relu.default(%x)
  %s: f32[3,4] = aten.select.int(%a, 0, 1)
  %t: f32[4,3] = aten.transpose.int(%s, 0, 1)
  %u: f32[1,4,3] = aten.unsqueeze.default(%t, 0)
  %w: f32[1,4,3] = aten.neg.default(%u)
  %0: f32[4,3] = aten.reshape_as.default(%w, %t)
  %1: f32[3,4] = aten.transpose.int(%0, 0, 1)
  %2: f32[2,3,4] = aten.select_scatter.default(%a, %1, 0, 1)
  return (%2))"));
}

TEST(FunctionalizeViews, TakesAViewAgainAfterAWriteIntoItsBase) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[batch,4]):
  %a: f32[batch,4] = aten.relu.default(%x)
  %v: f32[4,batch] = aten.t.default(%a)
  %w: f32[batch,4] = aten.mul_.Scalar(%a, 2)
  %y: f32[4,batch] = aten.exp.default(%v)
  return (%y))"),
            ir::normalize(R"(
graph(%x: f32[batch,4]):
  %a: f32[batch,4] = aten.relu.default(%x)
  %w: f32[batch,4] = aten.mul.Scalar(%a, 2)
  %0: f32[4,batch] = aten.t.default(%w)
  %y: f32[4,batch] = aten.exp.default(%0)
  return (%y))"));
}

TEST(FunctionalizeViews, TakesAViewAgainAfterAWriteIntoAnotherView) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[6]):
  %a: f32[6] = aten.relu.default(%x)
  %l: f32[4] = aten.slice.Tensor(%a, 0, 0, 4)
  %r: f32[4] = aten.slice.Tensor(%a, 0, 2, 6)
  %w: f32[4] = aten.mul_.Scalar(%l, 2)
  %y: f32[4] = aten.exp.default(%r)
  return (%y))"),
            ir::normalize(R"(
graph(%x: f32[6]):
  %a: f32[6] = aten.relu.default(%x)
  %l: f32[4] = aten.slice.Tensor(%a, 0, 0, 4)
  %w: f32[4] = aten.mul.Scalar(%l, 2)
  %0: f32[6] = aten.slice_scatter.default(%a, %w, 0, 0, 4)
  %1: f32[4] = aten.slice.Tensor(%0, 0, 2, 6)
  %y: f32[4] = aten.exp.default(%1)
  return (%y))"));
}

TEST(FunctionalizeViews, TakesAViewAgainOnlyOnceForEachWrite) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[6]):
  %a: f32[6] = aten.relu.default(%x)
  %v: f32[2,3] = aten.view.default(%a, [2, 3])
  %w: f32[6] = aten.mul_.Scalar(%a, 2)
  %y: f32[2,3] = aten.exp.default(%v)
  %z: f32[2,3] = aten.neg.default(%v)
  return (%y, %z))"),
            ir::normalize(R"(
graph(%x: f32[6]):
  %a: f32[6] = aten.relu.default(%x)
  %w: f32[6] = aten.mul.Scalar(%a, 2)
  %0: f32[2,3] = aten.view.default(%w, [2, 3])
  %y: f32[2,3] = aten.exp.default(%0)
  %z: f32[2,3] = aten.neg.default(%0)
  return (%y, %z))"));
}

TEST(FunctionalizeViews, ReshapesBackAWriteIntoAView) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[batch,6]):
  %a: f32[batch,6] = aten.relu.default(%x)
  %v: f32[batch,2,3] = aten.view.default(%a, [-1, 2, 3])
  %w: f32[batch,2,3] = aten.mul_.Scalar(%v, 2)
  return (%a))"),
            ir::normalize(R"(
graph(%x: f32[batch,6]):
  %a: f32[batch,6] = aten.relu.default(%x)
  %v: f32[batch,2,3] = aten.view.default(%a, [-1, 2, 3])
  %w: f32[batch,2,3] = aten.mul.Scalar(%v, 2)
  %0: f32[batch,6] = aten.reshape_as.default(%w, %a)
  return (%0))"));
}

TEST(FunctionalizeViews, PermutesBackAWriteIntoAPermutation) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[2,3,4]):
  %a: f32[2,3,4] = aten.relu.default(%x)
  %v: f32[4,2,3] = aten.permute.default(%a, [2, 0, -2])
  %w: f32[4,2,3] = aten.mul_.Scalar(%v, 2)
  return (%a))"),
            ir::normalize(R"(
graph(%x: f32[2,3,4]):
  %a: f32[2,3,4] = aten.relu.default(%x)
  %v: f32[4,2,3] = aten.permute.default(%a, [2, 0, -2])
  %w: f32[4,2,3] = aten.mul.Scalar(%v, 2)
  %0: f32[2,3,4] = aten.permute.default(%w, [1, 2, 0])
  return (%0))"));
}

TEST(FunctionalizeViews, MovesBackTheAxesOfAWrite) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[2,3,4]):
  %a: f32[2,3,4] = aten.relu.default(%x)
  %v: f32[3,4,2] = aten.movedim.int(%a, 0, -1)
  %w: f32[3,4,2] = aten.mul_.Scalar(%v, 2)
  return (%a))"),
            ir::normalize(R"(
graph(%x: f32[2,3,4]):
  %a: f32[2,3,4] = aten.relu.default(%x)
  %v: f32[3,4,2] = aten.movedim.int(%a, 0, -1)
  %w: f32[3,4,2] = aten.mul.Scalar(%v, 2)
  %0: f32[2,3,4] = aten.movedim.int(%w, -1, 0)
  return (%0))"));
}

TEST(FunctionalizeViews, ScattersAWriteIntoADiagonal) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[3,3]):
  %a: f32[3,3] = aten.relu.default(%x)
  %d: f32[3] = aten.diagonal.default(%a)
  %w: f32[3] = aten.zero_.default(%d)
  return (%a))"),
            ir::normalize(R"(
graph(%x: f32[3,3]):
  %a: f32[3,3] = aten.relu.default(%x)
  %d: f32[3] = aten.diagonal.default(%a)
  %w: f32[3] = aten.zeros_like.default(%d)
  %0: f32[3,3] = aten.diagonal_scatter.default(%a, %w)
  return (%0))"));
}

TEST(FunctionalizeViews, ScattersAWriteIntoOnePartOfASplit) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[2,6]):
  %a: f32[2,6] = aten.relu.default(%x)
  %p: f32[2,2], %q: f32[2,2], %r: f32[2,2] = aten.split.Tensor(%a, 2, -1)
  %w: f32[2,2] = aten.mul_.Scalar(%q, 2)
  return (%a, %r))"),
            ir::normalize(R"(
graph(%x: f32[2,6]):
  %a: f32[2,6] = aten.relu.default(%x)
  %p: f32[2,2], %q: f32[2,2], %r: f32[2,2] = aten.split.Tensor(%a, 2, -1)
  %w: f32[2,2] = aten.mul.Scalar(%q, 2)
  %0: f32[2,6] = aten.slice_scatter.default(%a, %w, 1, 2, 4)
  %1: f32[2,2], %2: f32[2,2], %3: f32[2,2] = aten.split.Tensor(%0, 2, -1)
  return (%0, %3))"));
}

TEST(FunctionalizeViews, ScattersAWriteIntoAPartOfASymbolicSize) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[past + seq,2], %past: int{past}, %seq: int{seq}):
  %a: f32[past + seq,2] = aten.relu.default(%x)
  %p: f32[past,2], %q: f32[seq,2] = aten.split_with_sizes.default(%a, [%past, %seq])
  %w: f32[seq,2] = aten.mul_.Scalar(%q, 2)
  return (%a))"),
            ir::normalize(R"(
graph(%x: f32[past + seq,2], %past: int{past}, %seq: int{seq}):
  %a: f32[past + seq,2] = aten.relu.default(%x)
  %p: f32[past,2], %q: f32[seq,2] = aten.split_with_sizes.default(%a, [%past, %seq])
  %w: f32[seq,2] = aten.mul.Scalar(%q, 2)
  %0: int{past} = aten.sym_size.int(%p, 0)
  %1: int{seq} = aten.sym_size.int(%q, 0)
  %2: int{past + seq} = operator.add(%0, %1)
  %3: f32[past + seq,2] = aten.slice_scatter.default(%a, %w, 0, %0, %2)
  return (%3))"));
}

TEST(FunctionalizeViews, ScattersAWriteIntoOneTensorOfAnUnbind) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[2,3]):
  %a: f32[2,3] = aten.relu.default(%x)
  %p: f32[2], %q: f32[2], %r: f32[2] = aten.unbind.int(%a, 1)
  %w: f32[2] = aten.mul_.Scalar(%r, 2)
  return (%a))"),
            ir::normalize(R"(
graph(%x: f32[2,3]):
  %a: f32[2,3] = aten.relu.default(%x)
  %p: f32[2], %q: f32[2], %r: f32[2] = aten.unbind.int(%a, 1)
  %w: f32[2] = aten.mul.Scalar(%r, 2)
  %0: f32[2,3] = aten.select_scatter.default(%a, %w, 1, 2)
  return (%0))"));
}

TEST(FunctionalizeViews, ScattersAWriteIntoANarrowedTensor) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[8,3], %n: int{n}):
  %a: f32[8,3] = aten.relu.default(%x)
  %v: f32[2,3] = aten.narrow.default(%a, 0, %n, 2)
  %w: f32[2,3] = aten.mul_.Scalar(%v, 2)
  return (%a))"),
            ir::normalize(R"(
graph(%x: f32[8,3], %n: int{n}):
  %a: f32[8,3] = aten.relu.default(%x)
  %v: f32[2,3] = aten.narrow.default(%a, 0, %n, 2)
  %w: f32[2,3] = aten.mul.Scalar(%v, 2)
  %0: int{n + 2} = operator.add(%n, 2)
  %1: f32[8,3] = aten.slice_scatter.default(%a, %w, 0, %n, %0)
  return (%1))"));
}

TEST(FunctionalizeViews, ChangesTheShapeOfATensorItself) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[3]):
  %a: f32[3] = aten.relu.default(%x)
  %v: f32[3] = aten.alias.default(%a)
  %u: f32[1,3] = aten.unsqueeze_.default(%a, 0)
  %w: f32[1,3] = aten.mul_.Scalar(%a, 2)
  return (%a, %v))"),
            ir::normalize(R"(
graph(%x: f32[3]):
  %a: f32[3] = aten.relu.default(%x)
  %0: f32[1,3] = aten.unsqueeze.default(%a, 0)
  %w: f32[1,3] = aten.mul.Scalar(%0, 2)
  %1: f32[3] = aten.reshape_as.default(%w, %a)
  return (%w, %1))"));
}

TEST(FunctionalizeViews, TreatsDetachAsTheSameTensor) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[3]):
  %a: f32[3] = aten.relu.default(%x)
  %d: f32[3] = aten.detach.default(%a)
  %e: f32[3] = aten.detach_.default(%d)
  %w: f32[3] = aten.mul_.Scalar(%e, 2)
  return (%a))"),
            ir::normalize(R"(
graph(%x: f32[3]):
  %a: f32[3] = aten.relu.default(%x)
  %w: f32[3] = aten.mul.Scalar(%a, 2)
  return (%w))"));
}

TEST(FunctionalizeViews, TreatsAConversionToTheSameDtypeAsTheSameTensor) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[3]):
  %a: f32[3] = aten.relu.default(%x)
  %s: f32[3] = aten.to.dtype(%a, dtype:f32)
  %h: f16[3] = aten.to.dtype(%a, dtype:f16)
  %w: f32[3] = aten.mul_.Scalar(%s, 2)
  return (%a, %h))"),
            ir::normalize(R"(
graph(%x: f32[3]):
  %a: f32[3] = aten.relu.default(%x)
  %h: f16[3] = aten.to.dtype(%a, dtype:f16)
  %w: f32[3] = aten.mul.Scalar(%a, 2)
  return (%w, %h))"));
}

TEST(FunctionalizeViews, TreatsAReshapeOfAContiguousTensorAsAView) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[2,3]):
  %a: f32[2,3] = aten.relu.default(%x)
  %r: f32[6] = aten.reshape.default(%a, [6])
  %w: f32[6] = aten.mul_.Scalar(%r, 2)
  return (%a))"),
            ir::normalize(R"(
graph(%x: f32[2,3]):
  %a: f32[2,3] = aten.relu.default(%x)
  %r: f32[6] = aten.reshape.default(%a, [6])
  %w: f32[6] = aten.mul.Scalar(%r, 2)
  %0: f32[2,3] = aten.reshape_as.default(%w, %a)
  return (%0))"));
}

TEST(FunctionalizeViews, TreatsAReshapeOfATransposedTensorAsACopy) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[2,3]):
  %a: f32[2,3] = aten.relu.default(%x)
  %t: f32[3,2] = aten.t.default(%a)
  %r: f32[6] = aten.reshape.default(%t, [6])
  %w: f32[6] = aten.mul_.Scalar(%r, 2)
  return (%a, %r))"),
            ir::normalize(R"(
graph(%x: f32[2,3]):
  %a: f32[2,3] = aten.relu.default(%x)
  %t: f32[3,2] = aten.t.default(%a)
  %r: f32[6] = aten.reshape.default(%t, [6])
  %w: f32[6] = aten.mul.Scalar(%r, 2)
  return (%a, %w))"));
}

TEST(FunctionalizeViews, BelievesTheMarkOfACopy) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[2,3]):
  %a: f32[2,3] = aten.relu.default(%x)
  %r: f32[6] = aten.reshape.default(%a, [6]) {shares=-1}
  %w: f32[6] = aten.mul_.Scalar(%r, 2)
  return (%a, %r))"),
            ir::normalize(R"(
graph(%x: f32[2,3]):
  %a: f32[2,3] = aten.relu.default(%x)
  %r: f32[6] = aten.reshape.default(%a, [6])
  %w: f32[6] = aten.mul.Scalar(%r, 2)
  return (%a, %w))"));
}

TEST(FunctionalizeViews, TreatsDropoutInEvaluationAsTheSameTensor) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[3]):
  %a: f32[3] = aten.relu.default(%x)
  %d: f32[3] = aten.dropout.default(%a, 0.5, false)
  %w: f32[3] = aten.mul_.Scalar(%d, 2)
  return (%a))"),
            ir::normalize(R"(
graph(%x: f32[3]):
  %a: f32[3] = aten.relu.default(%x)
  %w: f32[3] = aten.mul.Scalar(%a, 2)
  return (%w))"));
}

TEST(FunctionalizeViews, TakesAnExpandedViewAgain) {
  EXPECT_EQ(functional(R"(
graph(%x: f32[1,3]):
  %a: f32[1,3] = aten.relu.default(%x)
  %e: f32[2,3] = aten.expand.default(%a, [2, 3])
  %w: f32[1,3] = aten.mul_.Scalar(%a, 2)
  %y: f32[2,3] = aten.exp.default(%e)
  return (%y))"),
            ir::normalize(R"(
graph(%x: f32[1,3]):
  %a: f32[1,3] = aten.relu.default(%x)
  %w: f32[1,3] = aten.mul.Scalar(%a, 2)
  %0: f32[2,3] = aten.expand.default(%w, [2, 3])
  %y: f32[2,3] = aten.exp.default(%0)
  return (%y))"));
}

TEST(FunctionalizeViews, RefusesAWriteIntoAStridedView) {
  EXPECT_THAT(
      [] {
        functional(R"(
graph(%x: f32[4]):
  %a: f32[4] = aten.relu.default(%x)
  %s: f32[2,2] = aten.as_strided.default(%a, [2, 2], [1, 1])
  %w: f32[2,2] = aten.mul_.Scalar(%s, 2)
  return (%a))");
      },
      ThrowsMessage<ImportError>(HasSubstr("cannot make aten.mul_.Scalar functional: it writes through "
                                           "aten.as_strided.default, whose elements cannot be put back")));
}

TEST(FunctionalizeViews, RefusesAWriteIntoAnExpandedTensor) {
  EXPECT_THAT(
      [] {
        functional(R"(
graph(%x: f32[1,3]):
  %a: f32[1,3] = aten.relu.default(%x)
  %e: f32[2,3] = aten.expand.default(%a, [2, 3])
  %w: f32[2,3] = aten.mul_.Scalar(%e, 2)
  return (%a))");
      },
      ThrowsMessage<ImportError>(HasSubstr("cannot make aten.mul_.Scalar functional: it writes through "
                                           "aten.expand.default, whose elements cannot be put back")));
}

}  // namespace
}  // namespace exportguard::importer
