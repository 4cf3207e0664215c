#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(SelectionLowering, WhereOfBoolsRunsInUint8) {
  const std::string_view graph = R"(
    graph(%c: bool[b], %x: bool[b], %y: bool[b]):
      %z: bool[b] = aten.where.self(%c, %x, %y)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=2}
  %1 = Cast(%y) {to=2}
  %2 = Where(%c, %0, %1)
  %z = Cast(%2) {to=9}
  return (%z)
)");
}

TEST(SelectionLowering, MaskedFillTakesItsValueInTheDtypeOfTheTensor) {
  const std::string_view graph = R"(
    graph(%x: f16[b], %m: bool[b]):
      %z: f16[b] = aten.masked_fill.Scalar(%x, %m, -65504)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %z = Where(%m, %constant.f16.-65504, %x)
  return (%z)
)");
}

}  // namespace
}  // namespace exportguard::lowering
