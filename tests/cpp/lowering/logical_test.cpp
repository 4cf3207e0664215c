#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(LogicalLowering, LogicalAndTakesNumbersForFlags) {
  const std::string_view graph = R"(
    graph(%x: f32[b], %y: bool[b]):
      %z: bool[b] = aten.logical_and.default(%x, %y)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=9}
  %z = And(%0, %y)
  return (%z)
)");
}

}  // namespace
}  // namespace exportguard::lowering
