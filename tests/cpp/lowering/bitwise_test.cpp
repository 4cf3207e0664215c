#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(BitwiseLowering, BitwiseOrOfBoolsIsOr) {
  const std::string_view graph = R"(
    graph(%x: bool[b], %y: bool[b]):
      %z: bool[b] = aten.bitwise_or.Tensor(%x, %y)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %z = Or(%x, %y)
  return (%z)
)");
}

TEST(BitwiseLowering, RightShiftKeepsTheSign) {
  const std::string_view graph = R"(
    graph(%x: i32[b]):
      %z: i32[b] = aten.bitwise_right_shift.Tensor_Scalar(%x, 2)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Less(%x, %constant.i32.0)
  %1 = BitwiseNot(%x)
  %2 = Where(%0, %1, %x)
  %3 = Cast(%2) {to=12}
  %4 = BitShift(%3, %constant.u32.2) {direction="RIGHT"}
  %5 = Less(%constant.u32.2, %constant.u32.32)
  %6 = Where(%5, %4, %constant.u32.0)
  %7 = Cast(%6) {to=6}
  %8 = BitwiseNot(%7)
  %z = Where(%0, %8, %7)
  return (%z)
)");
}

}  // namespace
}  // namespace exportguard::lowering
