#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(ExponentialLowering, Log1pKeepsTheDigitsOfSmallNumbers) {
  const std::string_view graph = R"(
    graph(%x: f32[b]):
      %z: f32[b] = aten.log1p.default(%x)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Add(%x, %constant.f32.1)
  %1 = Sub(%0, %constant.f32.1)
  %2 = Log(%0)
  %3 = Div(%x, %1)
  %4 = Mul(%2, %3)
  %5 = Abs(%1)
  %6 = Greater(%5, %constant.f32.0)
  %7 = Greater(%x, %constant.f32.1)
  %8 = Where(%7, %2, %4)
  %z = Where(%6, %8, %x)
  return (%z)
)");
}

TEST(ExponentialLowering, ExpOfIntegersIsOfFloats) {
  const std::string_view graph = R"(
    graph(%x: i32[b]):
      %z: f32[b] = aten.exp.default(%x)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=1}
  %z = Exp(%0)
  return (%z)
)");
}

TEST(ExponentialLowering, Log2OfFloat16IsComputedInFloat64) {
  const std::string_view graph = R"(
    graph(%x: f16[b]):
      %z: f16[b] = aten.log2.default(%x)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=11}
  %1 = Log(%0)
  %2 = Div(%1, %constant.f64.0.6931471805599453)
  %z = Cast(%2) {to=10}
  return (%z)
)");
}

}  // namespace
}  // namespace exportguard::lowering
