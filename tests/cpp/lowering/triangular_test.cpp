#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(TriangularLowering, TrilTakesTheSizeOfAnother) {
  const std::string_view graph = R"(
    graph(%x: f32[n,n], %y: f32[m]):
      %m: int{m} = aten.sym_size.int(%y, 0)
      %z: f32[n,n] = aten.tril.default(%x, %m)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Shape(%y) {start=0, end=1}
  %m = Squeeze(%0, %"constant.i64[0]")
  %z = Trilu(%x, %m) {upper=0}
  return (%z)
)");
}

TEST(TriangularLowering, ATriangleOfBytesIsCutInInt32) {
  const std::string_view graph = R"(
    graph(%x: u8[n,n]):
      %z: u8[n,n] = aten.triu.default(%x)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Cast(%x) {to=6}
  %1 = Trilu(%0) {upper=1}
  %z = Cast(%1) {to=2}
  return (%z)
)");
}

TEST(TriangularLowering, OneHotHasTheClassesLast) {
  const std::string_view graph = R"(
    graph(%x: i64[n]):
      %z: i64[n,10] = aten.one_hot.default(%x, 10)
      return (%z))";
  EXPECT_EQ(lowered(graph), R"(  %z = OneHot(%x, %constant.i64.10, %"constant.i64[0,1]") {axis=-1}
  return (%z)
)");
}

}  // namespace
}  // namespace exportguard::lowering
