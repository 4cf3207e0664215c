#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(SpecialLowering, ErfOfIntegersIsOfFloats) {
  const std::string_view graph = R"(
    graph(%x: i64[b]):
      %z: f32[b] = aten.erf.default(%x)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=1}
  %z = Erf(%0)
  return (%z)
)");
}

}  // namespace
}  // namespace exportguard::lowering
