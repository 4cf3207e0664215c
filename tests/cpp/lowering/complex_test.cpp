#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exportguard/common/errors.h"
#include "exportguard/lowering/table.h"
#include "lowering/complex_parts.h"
#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(ComplexLowering, AProductIsFourRealOnes) {
  const std::string_view graph = R"(
    graph(%x: f32[b,2], %y: f32[b,2]):
      %a: c64[b] = aten.view_as_complex.default(%x)
      %c: c64[b] = aten.view_as_complex.default(%y)
      %m: c64[b] = aten.mul.Tensor(%a, %c)
      %z: f32[b] = aten.real.default(%m)
      return (%z))";
  const std::string text = lowered(graph);
  EXPECT_THAT(text, testing::HasSubstr("Sub("));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("Add(")));  // nobody reads the imaginary part
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("aten.")));
}

TEST(ComplexLowering, AnOutputHasALastAxisOfTwo) {
  const std::string_view graph = R"(
    graph(%x: f32[b,2]):
      %a: c64[b] = aten.view_as_complex.default(%x)
      return (%a))";
  EXPECT_THAT(lowered(graph), testing::HasSubstr("Concat("));
}

TEST(ComplexLowering, OperatorsWithoutARuleAreNamed) {
  const std::string_view graph = R"(
    graph(%x: f32[b,2]):
      %a: c64[b] = aten.view_as_complex.default(%x)
      %c: c64[b] = aten.erf.default(%a)
      %z: f32[b] = aten.real.default(%c)
      return (%z))";
  EXPECT_THAT([&] { lowered(graph); }, testing::ThrowsMessage<LoweringError>(
                                           testing::HasSubstr("no rule for complex tensors in aten.erf.default; ")));
}

TEST(ComplexRules, ASecondClaimOfOneOperatorIsRefused) {
  LoweringTable table = LoweringTable::builtin();
  EXPECT_THAT(
      [&] { table.add_complex({"aten.frac.default", "aten.exp.default"}, [](ComplexSite&) {}); },
      testing::ThrowsMessage<InvalidArgument>("aten.exp.default has a rule for complex tensors already; keep one"));
}

TEST(LoweringTable, ASecondRowOfOneOperatorIsRefused) {
  LoweringTable table = LoweringTable::builtin();
  EXPECT_THAT(
      [&] { table.add("aten.relu.default", [](LoweringContext&) {}); },
      testing::ThrowsMessage<InvalidArgument>("aten.relu.default has a lowering already; remove one of the two rows"));
}

}  // namespace
}  // namespace exportguard::lowering
