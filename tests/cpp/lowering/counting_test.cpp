#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(CountingLowering, BincountHasABinForTheGreatestNumber) {
  const std::string_view graph = R"(
    graph(%x: i64[n]):
      %y: i64[u0] = aten.bincount.default(%x)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Concat(%"constant.i64[-1]", %x) {axis=0}
  %1 = ReduceMax(%0, %"constant.i64[0]") {keepdims=1}
  %2 = Add(%1, %"constant.i64[1]")
  %3 = Max(%2, %"constant.i64[0]")
  %4 = Shape(%x) {start=0, end=1}
  %5 = ConstantOfShape(%4) {value=i64[1]{1}}
  %6 = ConstantOfShape(%3) {value=i64[1]{0}}
  %y = ScatterElements(%6, %x, %5) {axis=0, reduction="add"}
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
