#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(BatchNormalizationLowering, EvaluationIsBatchNormalization) {
  const std::string_view graph = R"(
    graph(%x: f32[b,3,h], %w: f32[3], %c: f32[3], %m: f32[3], %v: f32[3]):
      %y: f32[b,3,h] = aten.batch_norm.default(%x, %w, %c, %m, %v, false, 0.1, 1e-05, true)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %y = BatchNormalization(%x, %w, %c, %m, %v) {epsilon=1e-05}
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
