#include <gmock/gmock.h>

#include "exportguard/common/errors.h"
#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(ScatteringLowering, ASourceOfTheSameShapeIsNotCut) {
  const std::string_view graph = R"(
    graph(%x: f32[n,4], %i: i64[m,4], %s: f32[m,4]):
      %y: f32[n,4] = aten.scatter_add.default(%x, 0, %i, %s)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %y = ScatterElements(%x, %i, %s) {axis=0, reduction="add"}
  return (%y)
)");
}

TEST(ScatteringLowering, ALargerSourceIsCutToTheIndex) {
  const std::string_view graph = R"(
    graph(%x: f32[n,4], %i: i64[m,2], %s: f32[k,4]):
      %y: f32[n,4] = aten.scatter.src(%x, 0, %i, %s)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Shape(%i)
  %1 = Slice(%s, %"constant.i64[0,0]", %0)
  %y = ScatterElements(%x, %i, %1) {axis=0}
  return (%y)
)");
}

TEST(ScatteringLowering, IndexAddOfRowsIsAScatterND) {
  const std::string_view graph = R"(
    graph(%x: f32[n,4], %i: i64[m], %s: f32[m,4]):
      %y: f32[n,4] = aten.index_add.default(%x, 0, %i, %s)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Unsqueeze(%i, %"constant.i64[1]")
  %y = ScatterND(%x, %0, %s) {reduction="add"}
  return (%y)
)");
}

TEST(ScatteringLowering, AnUnknownReductionIsNamed) {
  const std::string_view graph = R"(
    graph(%x: f32[4], %i: i64[4]):
      %y: f32[4] = aten.scatter_reduce.two(%x, 0, %i, %x, "median")
      return (%y))";
  EXPECT_THAT(
      [&] { lowered(graph); },
      ThrowsMessage<LoweringError>(HasSubstr(
          "cannot lower aten.scatter_reduce.two: the reduction must be sum, mean, prod, amax or amin, got median")));
}

}  // namespace
}  // namespace exportguard::lowering
