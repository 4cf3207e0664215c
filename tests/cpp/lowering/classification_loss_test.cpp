#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(ClassificationLossLowering, IgnoredTargetsDoNotCount) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3], %t: i64[b]):
      %y: f32[] = aten.nll_loss_nd.default(%x, %t)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Equal(%t, %constant.i64.-100)
  %1 = Not(%0)
  %2 = Where(%1, %t, %constant.i64.0)
  %3 = Unsqueeze(%2, %"constant.i64[1]")
  %4 = GatherElements(%x, %3) {axis=1}
  %5 = Squeeze(%4, %"constant.i64[1]")
  %6 = Neg(%5)
  %7 = Cast(%1) {to=1}
  %8 = Where(%1, %6, %constant.f32.0)
  %9 = ReduceSum(%8, %"constant.i64[0]") {keepdims=0}
  %10 = ReduceSum(%7, %"constant.i64[0]") {keepdims=0}
  %y = Div(%9, %10)
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
