#include "exportguard/ir/wide_ends.h"

#include <gmock/gmock.h>

#include "exportguard/ir/text.h"
#include "exportguard/ir/verify.h"

namespace exportguard::ir {
namespace {

std::string widened(const char* text, const std::set<std::string, std::less<>>& names) {
  Model model = parse_model(text);
  widen_ends(model, names);
  verify(model);
  return print(model);
}

std::string normal(const char* text) { return print(parse_model(text)); }

TEST(WideEnds, AnInputAndAnOutputAreCastAndTheRestComputesAsBefore) {
  EXPECT_EQ(widened(R"(
opset 20
graph(%ids: i64[n], %x: f16[n,3], %past: f16[n,3]):
  %y: f16[n,3] = Add(%x, %past)
  %logits: f16[n,3] = Relu(%y)
  return (%logits, %y))",
                    {"x", "logits", "ids"}),
            normal(R"(
opset 20
graph(%ids: i64[n], %x: f32[n,3], %past: f16[n,3]):
  %0: f16[n,3] = Cast(%x) {to=10}
  %y: f16[n,3] = Add(%0, %past)
  %logits: f16[n,3] = Relu(%y)
  %1: f32[n,3] = Cast(%logits) {to=1}
  return (%1 as logits, %y))"));
}

TEST(WideEnds, AnInputThatIsReturnedTwiceIsRoundedOnceAndKeepsItsNames) {
  EXPECT_EQ(widened(R"(
opset 20
graph(%x: bf16[2]):
  return (%x as a, %x as b))",
                    {"x", "b"}),
            normal(R"(
opset 20
graph(%x: f32[2]):
  %0: bf16[2] = Cast(%x) {to=16}
  %1: f32[2] = Cast(%0) {to=1}
  return (%0 as a, %1 as b))"));
}

TEST(WideEnds, NamesOfNothingInHalfPrecisionChangeNothing) {
  constexpr const char* kGraph = R"(
opset 20
graph(%x: f32[2], %n: i64[]):
  %y = Relu(%x)
  return (%y, %n))";
  EXPECT_EQ(widened(kGraph, {"x", "y", "n", "z"}), normal(kGraph));
}

}  // namespace
}  // namespace exportguard::ir
