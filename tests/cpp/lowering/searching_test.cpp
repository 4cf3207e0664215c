#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(SearchingLowering, SearchsortedCountsWhatComesBefore) {
  const std::string_view graph = R"(
    graph(%x: f32[n], %v: f32[m]):
      %y: i64[m] = aten.searchsorted.Tensor(%x, %v)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Unsqueeze(%v, %"constant.i64[1]")
  %1 = Less(%x, %0)
  %2 = IsNaN(%0)
  %3 = Or(%1, %2)
  %4 = Cast(%3) {to=7}
  %y = ReduceSum(%4, %"constant.i64[1]") {keepdims=0}
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
