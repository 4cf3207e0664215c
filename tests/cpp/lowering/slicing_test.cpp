#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(SlicingLowering, ASliceOfTheWholeAxisIsTheTensor) {
  const std::string_view graph = R"(
    graph(%x: f32[n,4]):
      %y: f32[n,4] = aten.slice.Tensor(%x, 0, 0, 9223372036854775807)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  return (%x)
)");
}

TEST(SlicingLowering, ASliceTakesASizeAsItsBound) {
  const std::string_view graph = R"(
    graph(%x: f32[n,8], %y: f32[m]):
      %m: int{m} = aten.sym_size.int(%y, 0)
      %z: f32[n,m] = aten.slice.Tensor(%x, 1, None, %m)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Shape(%y) {start=0, end=1}
  %z = Slice(%x, %"constant.i64[0]", %0, %"constant.i64[1]", %"constant.i64[1]")
  return (%z)
)");
}

TEST(SlicingLowering, SelectIsAGatherOfOnePosition) {
  const std::string_view graph = R"(
    graph(%x: f32[n,8]):
      %y: f32[n] = aten.select.int(%x, 1, -1)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %y = Gather(%x, %constant.i64.-1) {axis=1}
  return (%y)
)");
}

TEST(SlicingLowering, UnbindMakesWhatIsRead) {
  const std::string_view graph = R"(
    graph(%x: f32[3,n]):
      %q: f32[n], %k: f32[n], %v: f32[n] = aten.unbind.int(%x)
      return (%q, %v))";
  EXPECT_EQ(lowered(graph), R"(  %q = Gather(%x, %constant.i64.0) {axis=0}
  %v = Gather(%x, %constant.i64.2) {axis=0}
  return (%q, %v)
)");
}

TEST(SlicingLowering, AWriteIntoTheStartOfAnAxisJoinsTwoParts) {
  const std::string_view graph = R"(
    graph(%x: f32[n,8], %y: f32[n,3]):
      %z: f32[n,8] = aten.slice_scatter.default(%x, %y, 1, 0, 3)
      return (%z))";
  EXPECT_EQ(
      lowered(graph),
      R"(  %0 = Slice(%x, %"constant.i64[3]", %"constant.i64[9223372036854775807]", %"constant.i64[1]", %"constant.i64[1]")
  %z = Concat(%y, %0) {axis=1}
  return (%z)
)");
}

}  // namespace
}  // namespace exportguard::lowering
