#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(GroupedMatmulLowering, EveryGroupHasItsMatrix) {
  const std::string_view graph = R"(
    graph(%x: f32[s,4], %w: f32[2,4,6], %e: i32[2]):
      %y: f32[s,6] = transformers.grouped_mm_fallback.default(%x, %w, %e)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Shape(%x) {start=0, end=1}
  %1 = Cast(%e) {to=7}
  %2 = Concat(%1, %0) {axis=0}
  %3 = Concat(%"constant.i64[0]", %1) {axis=0}
  %4 = Sub(%2, %3)
  %5, %6, %7 = Split(%x, %4) {axis=0}
  %8, %9 = Split(%w) {axis=0, num_outputs=2}
  %10 = Squeeze(%8, %"constant.i64[0]")
  %11 = MatMul(%5, %10)
  %12 = Squeeze(%9, %"constant.i64[0]")
  %13 = MatMul(%6, %12)
  %14 = Gather(%4, %"constant.i64[2]") {axis=0}
  %15 = Concat(%14, %"constant.i64[6]") {axis=0}
  %16 = ConstantOfShape(%15) {value=f32[1]{0.0}}
  %y = Concat(%11, %13, %16) {axis=0}
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
