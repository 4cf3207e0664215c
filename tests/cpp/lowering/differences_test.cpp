#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(DifferencesLowering, DiffSubtractsNeighbours) {
  const std::string_view graph = R"(
    graph(%x: f32[n]):
      %y: f32[n - 1] = aten.diff.default(%x)
      return (%y))";
  EXPECT_EQ(
      lowered(graph),
      R"(  %0 = Slice(%x, %"constant.i64[1]", %"constant.i64[9223372036854775807]", %"constant.i64[0]", %"constant.i64[1]")
  %1 = Slice(%x, %"constant.i64[0]", %"constant.i64[-1]", %"constant.i64[0]", %"constant.i64[1]")
  %y = Sub(%0, %1)
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
