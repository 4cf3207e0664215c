#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(CountingLowering, BincountHasABinForTheGreatestNumber) {
  const std::string_view graph = R"(
    graph(%x: i64[n]):
      %y: i64[u0] = aten.bincount.default(%x)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = GreaterOrEqual(%x, %constant.i64.0)
  %1 = Cast(%0) {to=2}
  %2 = ReduceMin(%1) {keepdims=0}
  %3 = Cast(%2) {to=9}
  %4 = Where(%3, %constant.i64.0, %constant.i64.1)
  %5 = Gather(%"constant.i64[0]", %4) {axis=0}
  %6 = Add(%x, %5)
  %7 = Concat(%"constant.i64[-1]", %6) {axis=0}
  %8 = ReduceMax(%7, %"constant.i64[0]") {keepdims=1}
  %9 = Add(%8, %"constant.i64[1]")
  %10 = Max(%9, %"constant.i64[0]")
  %11 = Shape(%x) {start=0, end=1}
  %12 = ConstantOfShape(%11) {value=i64[1]{1}}
  %13 = ConstantOfShape(%10) {value=i64[1]{0}}
  %y = ScatterElements(%13, %6, %12) {axis=0, reduction="add"}
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
