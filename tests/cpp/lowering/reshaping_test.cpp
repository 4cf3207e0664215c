#include <gmock/gmock.h>

#include "exportguard/common/errors.h"
#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(ReshapingLowering, AViewByTheTensorsOwnSizesNeedsNoShapeArithmetic) {
  const std::string_view graph = R"(
    graph(%x: f32[batch,seq,64]):
      %b: int{batch} = aten.sym_size.int(%x, 0)
      %y: f32[batch,seq,4,16] = aten.view.default(%x, [%b, -1, 4, 16])
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %y = Reshape(%x, %"constant.i64[0,0,4,16]")
  return (%y)
)");
}

TEST(ReshapingLowering, SqueezeLeavesAnAxisThatIsNotOne) {
  const std::string_view graph = R"(
    graph(%x: f32[1,n]):
      %y: f32[n] = aten.squeeze.dims(%x, [0, 1])
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %y = Squeeze(%x, %"constant.i64[0]")
  return (%y)
)");
}

TEST(ReshapingLowering, TransposeOfANumberIsTheNumber) {
  const std::string_view graph = R"(
    graph(%x: f32[]):
      %y: f32[] = aten.transpose.int(%x, 0, -1)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  return (%x)
)");
}

TEST(ReshapingLowering, ExpandKeepsWhatIsThere) {
  const std::string_view graph = R"(
    graph(%x: f32[batch,1,seq]):
      %y: f32[batch,4,seq] = aten.expand.default(%x, [-1, 4, -1])
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %y = Expand(%x, %"constant.i64[1,4,1]")
  return (%y)
)");
}

TEST(ReshapingLowering, RepeatInterleaveIsAnExpandBetweenTwoShapes) {
  const std::string_view graph = R"(
    graph(%x: f32[batch,2,64]):
      %y: f32[batch,6,64] = aten.repeat_interleave.self_int(%x, 3, 1)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Unsqueeze(%x, %"constant.i64[2]")
  %1 = Expand(%0, %"constant.i64[1,1,3,1]")
  %y = Reshape(%1, %"constant.i64[0,6,64]")
  return (%y)
)");
}

TEST(ReshapingLowering, BitsOfFloatsAreNotReadAsIntegers) {
  const std::string_view graph = R"(
    graph(%x: f32[3]):
      %y: i32[3] = aten.view.dtype(%x, dtype:i32)
      return (%y))";
  EXPECT_THAT(
      [&] { lowered(graph); },
      ThrowsMessage<LoweringError>(HasSubstr("cannot lower aten.view.dtype: ONNX cannot read the bits of f32 as i32")));
}

}  // namespace
}  // namespace exportguard::lowering
