#include "exportguard/ir/congruence.h"

#include <gmock/gmock.h>

#include "exportguard/ir/text.h"

namespace exportguard::ir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string difference(const char* a, const char* b) { return first_difference(*parse_graph(a), *parse_graph(b)); }

constexpr const char* kSum = R"(
graph(%x: f32[2], %w: f32[2] = {1, 2}):
  %a = Neg(%x)
  %b = Add(%a, %w)
  return (%b))";

TEST(Congruence, NamesAndOrderAndCopiesOfNodesDoNotCount) {
  EXPECT_THAT(difference(kSum, R"(
graph(%x: f32[2], %v: f32[2] = {1, 2}):
  %unused = Abs(%x)
  %c = Neg(%x)
  %d = Add(%c, %v)
  return (%d))"),
              IsEmpty());
}

TEST(Congruence, AnotherOperatorIsNamed) {
  EXPECT_THAT(difference(kSum, R"(
graph(%x: f32[2], %w: f32[2] = {1, 2}):
  %a = Abs(%x)
  %b = Add(%a, %w)
  return (%b))"),
              AllOf(HasSubstr("output 0"), HasSubstr("Neg against Abs")));
}

TEST(Congruence, AnotherConstantIsNamed) {
  EXPECT_THAT(difference(kSum, R"(
graph(%x: f32[2], %w: f32[2] = {1, 3}):
  %a = Neg(%x)
  %b = Add(%a, %w)
  return (%b))"),
              HasSubstr("initializer w against initializer w"));
}

TEST(Congruence, AnotherAttributeIsNamed) {
  constexpr const char* text = R"(
graph(%x: f32[2,2]):
  %a = Softmax(%x) {axis=0}
  return (%a))";
  EXPECT_THAT(difference(text, R"(
graph(%x: f32[2,2]):
  %a = Softmax(%x) {axis=1}
  return (%a))"),
              HasSubstr("axis=0"));
}

TEST(Congruence, BodiesAreWhatTheyReturn) {
  constexpr const char* text = R"(
graph(%x: f32[2], %p: bool[]):
  %o = If(%p) {then_branch=graph():
      %b = Abs(%x)
      return (%b), else_branch=graph():
      return (%x)}
  return (%o))";
  EXPECT_THAT(difference(text, text), IsEmpty());
  EXPECT_THAT(difference(text, R"(
graph(%x: f32[2], %p: bool[]):
  %o = If(%p) {then_branch=graph():
      %b = Neg(%x)
      return (%b), else_branch=graph():
      return (%x)}
  return (%o))"),
              HasSubstr("If"));
}

TEST(Congruence, InputsAndOutputsAreCompared) {
  EXPECT_THAT(difference(kSum, R"(
graph(%x: f64[2], %w: f32[2] = {1, 2}):
  %a = Neg(%x)
  %b = Add(%a, %w)
  return (%b))"),
              HasSubstr("input 0 is x: f32[2] against x: f64[2]"));
}

}  // namespace
}  // namespace exportguard::ir
