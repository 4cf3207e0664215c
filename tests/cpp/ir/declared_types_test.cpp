#include "exportguard/ir/declared_types.h"

#include <gmock/gmock.h>

#include <string>
#include <string_view>

#include "exportguard/ir/text.h"

namespace exportguard::ir {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string inferred(std::string_view text) {
  Model model = parse_model(text);
  infer_declared(model);
  return print(model);
}

TEST(DeclaredTypes, ACallHasWhatTheBodyMakesOfItsOperands) {
  EXPECT_THAT(inferred(R"(opset 20
opset own 1
graph(%x: f32[b,4]):
  %y: f32[2,4] = own::Negated(%x)
  %z = Neg(%y)
  return (%z)
function own::Negated(%a) opsets(20):
  %r: f32[2,4] = Neg(%a)
  return (%r)
)"),
              AllOf(HasSubstr("%z: f32[b,4]"), HasSubstr("%r: f32[b,4]")));
}

TEST(DeclaredTypes, ABodyHasWhatHoldsAtEveryCall) {
  const std::string text = inferred(R"(opset 20
opset own 1
graph(%x: f32[b,4], %y: f32[3,4], %h: f16[b,4]):
  %p = own::Negated(%x)
  %q = own::Negated(%y)
  %r = own::Doubled(%x)
  %s = own::Doubled(%h)
  return (%p, %q, %r, %s)
function own::Negated(%a) opsets(20):
  %n: f32[b,4] = Neg(%a)
  return (%n)
function own::Doubled(%a) opsets(20):
  %d: f32[b,4] = Add(%a, %a)
  return (%d)
)");
  EXPECT_THAT(text, AllOf(HasSubstr("%p: f32[b,4]"), HasSubstr("%q: f32[3,4]"), HasSubstr("%s: f16[b,4]")));
  EXPECT_THAT(text, Not(HasSubstr("%n: f32[b,4]"))) << "the other call has other rows";
  EXPECT_THAT(text, Not(HasSubstr("%d: f32"))) << "the other call has another dtype";
}

TEST(DeclaredTypes, SizesThatABodyMakesUpAreOthersAtEachCall) {
  const std::string text = inferred(R"(opset 20
opset own 1
graph(%x: f32[b], %y: f32[b]):
  %p = own::Found(%x)
  %q = own::Found(%y)
  return (%p, %q)
function own::Found(%a) opsets(20):
  %n = NonZero(%a)
  return (%n)
)");
  const auto type_of = [&](std::string_view name) {
    const std::size_t begin = text.find(name) + name.size();
    return text.substr(begin, text.find(" =", begin) - begin);
  };
  EXPECT_NE(type_of("%p: "), type_of("%q: "));
}

TEST(DeclaredTypes, ALoopWithinAFunctionIsGivenItsTurnAsTheFileSays) {
  const std::string text = inferred(R"(opset 20
opset own 1
graph(%x: f32[b,4], %n: i64[]):
  %y = own::Doubled(%x, %n)
  return (%y)
function own::Doubled(%a, %count) opsets(20):
  %c: bool[] = Constant() {value=bool[]{true}}
  %r: f32[1,4] = Loop(%count, %c, %a) {body=graph(%i: i64[1], %go: bool[], %v: f32[1,4]):
      %w: f32[1,4] = Add(%v, %v)
      %k: bool[] = Identity(%go)
      return (%k, %w)}
  return (%r)
)");
  EXPECT_THAT(text, HasSubstr("graph(%i: i64[1], %go: bool[], %v: f32[*])"));
  EXPECT_THAT(text, Not(HasSubstr("f32[1,4]"))) << "the call has other rows";
}

TEST(DeclaredTypes, ALoopIsGivenItsTurnAsTheFileSaysWhereSizesAreForgotten) {
  EXPECT_THAT(inferred(R"(opset 20
graph(%x: f32[b,4], %n: i64[], %c: bool[]):
  %z: f32[2,4] = Neg(%x)
  %y: f32[2,4] = Loop(%n, %c, %z) {body=graph(%i: i64[1], %go: bool[], %v: f32[2,4]):
      %w: f32[2,4] = Add(%v, %v)
      %k: bool[] = Identity(%go)
      return (%k, %w)}
  return (%y)
)"),
              HasSubstr("graph(%i: i64[1], %go: bool[], %v: f32["));
}

TEST(DeclaredTypes, AFunctionThatCallsItselfEnds) {
  EXPECT_NO_THROW(inferred(R"(opset 20
opset own 1
graph(%x: f32[b]):
  %p = own::Again(%x)
  return (%p)
function own::Again(%a) opsets(20, own 1):
  %n = own::Again(%a)
  return (%n)
)"));
}

}  // namespace
}  // namespace exportguard::ir
