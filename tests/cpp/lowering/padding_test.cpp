#include <gmock/gmock.h>

#include "exportguard/common/errors.h"
#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(PaddingLowering, PadHasTheMarginsOfEveryAxis) {
  const std::string_view graph = R"(
    graph(%x: f32[n,3,4]):
      %y: f32[n,3,7] = aten.constant_pad_nd.default(%x, [1, 2, 0, 0])
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %y = Pad(%x, %"constant.i64[0,0,1,0,0,2]", _) {mode="constant"}
  return (%y)
)");
}

TEST(PaddingLowering, CircularPaddingGathersRoundTheAxis) {
  const std::string_view graph = R"(
    graph(%x: f32[n,4]):
      %y: f32[n,7] = aten.pad.default(%x, [1, 2], "circular")
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Sub(%"constant.i64[0,1,2,3,4,5,6]", %"constant.i64[1]")
  %1 = GreaterOrEqual(%0, %"constant.i64[4]")
  %2 = Sub(%0, %"constant.i64[4]")
  %3 = Where(%1, %2, %0)
  %y = Gather(%x, %3) {axis=1}
  return (%y)
)");
}

TEST(PaddingLowering, AnUnknownModeIsNamed) {
  const std::string_view graph = R"(
    graph(%x: f32[4]):
      %y: f32[6] = aten.pad.default(%x, [1, 1], "mirror")
      return (%y))";
  EXPECT_THAT(
      [&] { lowered(graph); },
      ThrowsMessage<LoweringError>(HasSubstr(
          "cannot lower aten.pad.default: the mode must be constant, reflect, replicate or circular, got mirror")));
}

}  // namespace
}  // namespace exportguard::lowering
