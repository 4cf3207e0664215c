#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(SortingLowering, TopkIsATopK) {
  const std::string_view graph = R"(
    graph(%x: f32[n,8]):
      %v: f32[n,2], %i: i64[n,2] = aten.topk.default(%x, 2)
      return (%v, %i))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=11}
  %1 = Min(%0, %"constant.f64.1e+300")
  %2 = IsNaN(%0)
  %3 = Where(%2, %constant.f64.inf, %1)
  %4, %i = TopK(%3, %"constant.i64[2]") {axis=1, largest=1}
  %v = GatherElements(%x, %i) {axis=1}
  return (%v, %i)
)");
}

TEST(SortingLowering, SortIsATopKOfTheWholeAxis) {
  const std::string_view graph = R"(
    graph(%x: bool[n]):
      %v: bool[n], %i: i64[n] = aten.sort.default(%x, 0, true)
      return (%v, %i))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Shape(%x) {start=0, end=1}
  %1 = Cast(%x) {to=2}
  %2, %i = TopK(%1, %0) {axis=0, largest=1}
  %v = Cast(%2) {to=9}
  return (%v, %i)
)");
}

TEST(SortingLowering, UniqueCastsToADtypeWithAKernel) {
  const std::string_view graph = R"(
    graph(%x: i32[n]):
      %v: i32[u0], %i: i64[n], %c: i64[u0] = aten._unique2.default(%x, true, true, true)
      return (%v, %i, %c))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=7}
  %1, %2, %3, %c = Unique(%0) {sorted=1}
  %4 = Shape(%x) {start=0, end=1}
  %i = Reshape(%3, %4) {allowzero=1}
  %v = Cast(%1) {to=6}
  return (%v, %i, %c)
)");
}

}  // namespace
}  // namespace exportguard::lowering
