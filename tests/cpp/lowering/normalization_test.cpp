#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(NormalizationLowering, LayerNormWithoutWeightHasOnes) {
  const std::string_view graph = R"(
    graph(%x: f32[b,s,4]):
      %y: f32[b,s,4] = aten.layer_norm.default(%x, [4], None, None, 1e-05)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = ConstantOfShape(%"constant.i64[4]") {value=f32[1]{1.0}}
  %y = LayerNormalization(%x, %0) {axis=2, epsilon=1e-05}
  return (%y)
)");
}

TEST(NormalizationLowering, RmsNormIsSpelledOutBeforeOpset23) {
  const std::string_view graph = R"(
    graph(%x: f16[b,4], %w: f16[4]):
      %y: f16[b,4] = aten.rms_norm.default(%x, [4], %w, 1e-06)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=1}
  %1 = Pow(%0, %constant.f32.2)
  %2 = ReduceMean(%1, %"constant.i64[1]") {keepdims=1}
  %3 = Add(%2, %constant.f32.1e-06)
  %4 = Sqrt(%3)
  %5 = Reciprocal(%4)
  %6 = Mul(%0, %5)
  %7 = Cast(%w) {to=1}
  %8 = Mul(%6, %7)
  %y = Cast(%8) {to=10}
  return (%y)
)");
}

TEST(NormalizationLowering, RmsNormIsOneOperatorFromOpset23) {
  const std::string_view graph = R"(
    graph(%x: f32[b,4], %w: f32[4]):
      %y: f32[b,4] = aten.rms_norm.default(%x, [4], %w, 1e-06)
      return (%y))";
  EXPECT_EQ(lowered(graph, 23), R"(  %y = RMSNormalization(%x, %w) {axis=1, epsilon=1e-06}
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
