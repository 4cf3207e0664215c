#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exportguard/common/errors.h"
#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(ActivationLowering, GeluIsOneOperatorFromOpset20) {
  const std::string_view graph = R"(
    graph(%x: f32[b]):
      %z: f32[b] = aten.gelu.default(%x, "tanh")
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %z = Gelu(%x) {approximate="tanh"}
  return (%z)
)");
}

TEST(ActivationLowering, GeluIsSpelledOutBelowOpset20) {
  const std::string_view graph = R"(
    graph(%x: f32[b]):
      %z: f32[b] = aten.gelu.default(%x)
      return (%z))";
  EXPECT_EQ(lowered(graph, 18), R"(  %0 = Mul(%x, %constant.f32.0.7071067811865475)
  %1 = Erf(%0)
  %2 = Mul(%x, %constant.f32.0.5)
  %3 = Add(%1, %constant.f32.1)
  %z = Mul(%2, %3)
  return (%z)
)");
}

TEST(ActivationLowering, SiluMultipliesByTheSigmoid) {
  const std::string_view graph = R"(
    graph(%x: f32[b]):
      %z: f32[b] = aten.silu.default(%x)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Sigmoid(%x)
  %z = Mul(%x, %0)
  return (%z)
)");
}

TEST(ActivationLowering, SoftplusIsLinearBeyondALowThreshold) {
  const std::string_view graph = R"(
    graph(%x: f32[b]):
      %z: f32[b] = aten.softplus.default(%x, 2.0, 3.0)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Mul(%x, %constant.f32.2)
  %1 = Softplus(%0)
  %2 = Mul(%1, %constant.f32.0.5)
  %3 = Greater(%0, %constant.f32.3)
  %z = Where(%3, %x, %2)
  return (%z)
)");
}

TEST(ActivationLowering, PreluSpreadsItsWeightOverTheChannels) {
  const std::string_view graph = R"(
    graph(%x: f32[b,4,5,6], %w: f32[4]):
      %z: f32[b,4,5,6] = aten.prelu.default(%x, %w)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Unsqueeze(%w, %"constant.i64[1,2]")
  %z = PRelu(%x, %0)
  return (%z)
)");
}

TEST(ActivationLowering, RreluInTrainingIsRefusedWithARemedy) {
  const std::string_view graph = R"(
    graph(%x: f32[b]):
      %z: f32[b] = aten.rrelu.default(%x, 0.1, 0.3, true)
      return (%z))";
  EXPECT_THAT([&] { lowered(graph); }, testing::ThrowsMessage<LoweringError>(testing::HasSubstr(
                                           "random slopes have no ONNX operator; export the model in eval mode")));
}

}  // namespace
}  // namespace exportguard::lowering
