#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(MaskingLowering, NonzeroIsATransposedNonZero) {
  const std::string_view graph = R"(
    graph(%x: i64[n,4]):
      %y: i64[u0,2] = aten.nonzero.default(%x)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = NonZero(%x)
  %y = Transpose(%0) {perm=[1, 0]}
  return (%y)
)");
}

TEST(MaskingLowering, MaskedSelectCompressesWhatIsFlat) {
  const std::string_view graph = R"(
    graph(%x: f32[n,4], %m: bool[n,4]):
      %y: f32[u0] = aten.masked_select.default(%x, %m)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Reshape(%x, %"constant.i64[-1]")
  %1 = Reshape(%m, %"constant.i64[-1]")
  %y = Compress(%0, %1) {axis=0}
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
