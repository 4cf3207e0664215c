#include <gmock/gmock.h>

#include "exportguard/common/errors.h"
#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(StridedLowering, AsStridedGathersPositionsOfTheMemory) {
  const std::string_view graph = R"(
    graph(%x: f32[12]):
      %y: f32[2,3] = aten.as_strided.default(%x, [2, 3], [1, 2])
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Mul(%"constant.i64[0,1]", %"constant.i64[1]")
  %1 = Unsqueeze(%0, %"constant.i64[1]")
  %2 = Add(%constant.i64.0, %1)
  %3 = Mul(%"constant.i64[0,1,2]", %"constant.i64[2]")
  %4 = Add(%2, %3)
  %y = Gather(%x, %4) {axis=0}
  return (%y)
)");
}

TEST(StridedLowering, AViewIsRefused) {
  const std::string_view graph = R"(
    graph(%x: f32[3,4]):
      %t: f32[4,3] = aten.t.default(%x)
      %y: f32[2,3] = aten.as_strided.default(%t, [2, 3], [1, 2])
      return (%y))";
  EXPECT_THAT([&] { lowered(graph); },
              ThrowsMessage<LoweringError>(HasSubstr("cannot lower aten.as_strided.default: the strides are those of a "
                                                     "view; call contiguous() on the tensor before")));
}

}  // namespace
}  // namespace exportguard::lowering
