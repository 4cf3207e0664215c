#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(TrigonometryLowering, SinOfIntegersIsOfFloats) {
  const std::string_view graph = R"(
    graph(%x: i64[b]):
      %z: f32[b] = aten.sin.default(%x)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=1}
  %z = Sin(%0)
  return (%z)
)");
}

TEST(TrigonometryLowering, TanOfFloat64IsComputedInFloat64) {
  const std::string_view graph = R"(
    graph(%x: f64[b]):
      %z: f64[b] = aten.tan.default(%x)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Sin(%x)
  %1 = Cos(%x)
  %z = Div(%0, %1)
  return (%z)
)");
}

}  // namespace
}  // namespace exportguard::lowering
