#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exportguard/common/errors.h"
#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(RecurrentLowering, GatesAreReordered) {
  const std::string_view graph = R"(
    graph(%x: f32[7,2,4], %h: f32[1,2,5], %w: f32[15,4], %r: f32[15,5], %wb: f32[15], %rb: f32[15]):
      %y: f32[7,2,5], %n: f32[1,2,5] = aten.gru.input(%x, %h, [%w, %r, %wb, %rb], true, 1, 0.0, false, false, false)
      return (%y, %n))";
  EXPECT_EQ(lowered(graph), R"(  %0, %1, %2 = Split(%wb) {axis=0, num_outputs=3}
  %3 = Concat(%1, %0, %2) {axis=0}
  %4, %5, %6 = Split(%rb) {axis=0, num_outputs=3}
  %7 = Concat(%5, %4, %6) {axis=0}
  %8 = Concat(%3, %7) {axis=0}
  %9 = Unsqueeze(%8, %"constant.i64[0]")
  %10, %11, %12 = Split(%w) {axis=0, num_outputs=3}
  %13 = Concat(%11, %10, %12) {axis=0}
  %14 = Unsqueeze(%13, %"constant.i64[0]")
  %15, %16, %17 = Split(%r) {axis=0, num_outputs=3}
  %18 = Concat(%16, %15, %17) {axis=0}
  %19 = Unsqueeze(%18, %"constant.i64[0]")
  %20, %n = GRU(%x, %14, %19, %9, _, %h) {hidden_size=5, direction="forward", linear_before_reset=1}
  %21 = Transpose(%20) {perm=[0, 2, 1, 3]}
  %y = Reshape(%21, %"constant.i64[7,2,5]")
  return (%y, %n)
)");
}

TEST(RecurrentLowering, OfNoSequenceAFileStopsWhereTheTargetEndsTheProcess) {
  const std::string_view graph = R"(
    graph(%x: f32[s,b,4], %h: f32[1,b,5], %w: f32[15,4], %r: f32[15,5]):
      %y: f32[s,b,5], %n: f32[1,b,5] = aten.gru.input(%x, %h, [%w, %r], false, 1, 0.0, false, false, false)
      return (%y, %n))";
  EXPECT_THAT(lowered(graph),
              testing::HasSubstr("= Unsqueeze(%h, %\"constant.i64[0]\")\n  %7 = Gather(%6, %5) {axis=0}"));
}

TEST(RecurrentLowering, AProjectedStateIsThatOfALayerWithoutOneProjected) {
  const std::string_view graph = R"(
    graph(%x: f32[s,b,4], %h: f32[1,b,2], %c: f32[1,b,5], %w: f32[20,4], %r: f32[20,2], %wb: f32[20], %rb: f32[20], %p: f32[2,5]):
      %y: f32[s,b,2], %n: f32[1,b,2], %m: f32[1,b,5] = aten.lstm.input(%x, [%h, %c], [%w, %r, %wb, %rb, %p], true, 1, 0.0, false, false, false)
      return (%y, %n, %m))";
  const std::string text = lowered(graph);
  EXPECT_THAT(text, testing::HasSubstr("hidden_size=5"));
  EXPECT_THAT(text, testing::HasSubstr("%y = Reshape("));
}

}  // namespace
}  // namespace exportguard::lowering
