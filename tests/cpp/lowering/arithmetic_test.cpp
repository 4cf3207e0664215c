#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exportguard/common/errors.h"
#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(ArithmeticLowering, AddMultipliesByAlphaAndPromotes) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3], %y: i64[3]):
      %z: f32[b,3] = aten.add.Tensor(%x, %y, 2)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%y) {to=1}
  %1 = Mul(%0, %constant.f32.2)
  %z = Add(%x, %1)
  return (%z)
)");
}

TEST(ArithmeticLowering, AddOfBoolsIsOr) {
  const std::string_view graph = R"(
    graph(%x: bool[b], %y: bool[b]):
      %z: bool[b] = aten.add.Tensor(%x, %y)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %z = Or(%x, %y)
  return (%z)
)");
}

TEST(ArithmeticLowering, TrueDivisionOfIntegersIsOfFloats) {
  const std::string_view graph = R"(
    graph(%x: i64[b], %y: i64[b]):
      %z: f32[b] = aten.div.Tensor(%x, %y)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=1}
  %1 = Cast(%y) {to=1}
  %z = Div(%0, %1)
  return (%z)
)");
}

TEST(ArithmeticLowering, FloorDivisionOfIntegersTakesOneOffWhatWasRoundedUp) {
  const std::string_view graph = R"(
    graph(%x: i64[b,3]):
      %z: i64[b,3] = aten.floor_divide.Scalar(%x, 2)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Div(%x, %constant.i64.2)
  %1 = Mul(%0, %constant.i64.2)
  %2 = Greater(%1, %x)
  %3 = Cast(%2) {to=7}
  %z = Sub(%0, %3)
  return (%z)
)");
}

TEST(ArithmeticLowering, RoundingModeTruncOfFloatsRoundsTowardsZero) {
  const std::string_view graph = R"(
    graph(%x: f32[b]):
      %z: f32[b] = aten.div.Scalar_mode(%x, 4.0, "trunc")
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Div(%x, %constant.f32.4)
  %1 = Greater(%0, %constant.f32.0)
  %2 = Floor(%0)
  %3 = Ceil(%0)
  %z = Where(%1, %2, %3)
  return (%z)
)");
}

TEST(ArithmeticLowering, PowerOfTwoIsAProductAndAHalfIsARoot) {
  const std::string_view graph = R"(
    graph(%x: f32[b]):
      %y: f32[b] = aten.pow.Tensor_Scalar(%x, 2)
      %z: f32[b] = aten.pow.Tensor_Scalar(%y, 0.5)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %y = Mul(%x, %x)
  %z = Sqrt(%y)
  return (%z)
)");
}

TEST(ArithmeticLowering, PowerOfIntegersIsAProductOfSquares) {
  const std::string_view graph = R"(
    graph(%x: i8[b]):
      %z: i8[b] = aten.pow.Tensor_Scalar(%x, 5)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=7}
  %1 = Mul(%0, %0)
  %2 = Mul(%1, %1)
  %3 = Mul(%0, %2)
  %z = Cast(%3) {to=3}
  return (%z)
)");
}

TEST(ArithmeticLowering, AnUnknownRoundingModeIsRefused) {
  const std::string_view graph = R"(
    graph(%x: f32[b]):
      %z: f32[b] = aten.div.Tensor_mode(%x, %x, "up")
      return (%z))";
  EXPECT_THAT([&] { lowered(graph); }, testing::ThrowsMessage<LoweringError>(
                                           testing::HasSubstr("rounding_mode must be None, 'floor' or 'trunc'")));
}

}  // namespace
}  // namespace exportguard::lowering
