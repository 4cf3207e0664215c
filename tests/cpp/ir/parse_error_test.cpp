#include <gmock/gmock.h>

#include "exportguard/common/errors.h"
#include "exportguard/ir/text.h"

namespace exportguard::ir {
namespace {

struct Fault {
  std::string name;
  std::string text;
  std::string message;
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

std::string case_name(const testing::TestParamInfo<Fault>& tested) { return tested.param.name; }

class ParseFault : public testing::TestWithParam<Fault> {};

TEST_P(ParseFault, SaysWhereAndWhatWasExpected) {
  try {
    parse_model(GetParam().text);
    FAIL() << "no error; expected: " << GetParam().message;
  } catch (const ParseError& error) {
    EXPECT_EQ(error.what(), GetParam().message);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Names, ParseFault,
    testing::Values(
        Fault{"UndefinedValue", "graph(%x):\n  %y = Neg(%z)\n  return (%y)", "line 2, column 12: %z is not defined"},
        Fault{"ValueThatReadsItself", "graph():\n  %y = Neg(%y)\n  return ()", "line 2, column 12: %y is not defined"},
        Fault{"ValueOfAClosedGraph", "graph(%p): %o = If(%p) {b=graph(): %k = F() return (%k)} return (%k)",
              "line 1, column 66: %k is not defined"},
        Fault{"DefinedTwice", "graph(%x):\n  %x = Neg(%x)\n  return ()", "line 2, column 3: %x is defined twice"},
        Fault{"DefinedTwiceInOneNode", "graph(): %x, %x = F() return ()", "line 1, column 14: %x is defined twice"},
        Fault{"ShadowedInANestedGraph", "graph(%x): %o = If() {b=graph(%x): return ()} return ()",
              "line 1, column 31: %x is defined twice"},
        Fault{"InitializerDefinedTwice", "graph(%w: f32[1] = {1}, %w: f32[1] = {2}): return ()",
              "line 1, column 25: %w is defined twice"},
        Fault{"UnnamedInitializer", "graph(%0: f32[1] = {1}): return ()",
              "line 1, column 7: an initializer needs a name, got %0"}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Structure, ParseFault,
    testing::Values(
        Fault{"NoGraph", "", "line 1, column 1: expected graph, got the end of the text"},
        Fault{"NoReturn", "graph():\n  %x = F()\n",
              "line 3, column 1: expected a node or return, got the end of the text"},
        Fault{"NoColon", "graph() return ()",
              "line 1, column 9: expected ':' and the nodes of the graph, got 'return'"},
        Fault{"NoEqualSign", "graph(): %x F() return ()",
              "line 1, column 13: expected ',', ':' or '=' behind the output of a node, got 'F'"},
        Fault{"NoOperator", "graph(): %x = 3 return ()",
              "line 1, column 15: expected an operator such as MatMul or aten.add.Tensor, got '3'"},
        Fault{"LiteralForAnOnnxNode", "graph(%x): %y = Add(%x, 2.5) return ()",
              "line 1, column 25: expected an operand: a value or _, got '2.5'"},
        Fault{"OpenParenthesis", "graph(%x): %y = Add(%x return ()",
              "line 1, column 24: expected ',' or ')' behind an operand, got 'return'"},
        Fault{"MoreText", "graph(): return () graph()",
              "line 1, column 20: expected a function or the end of the text behind the graph, got 'graph'"},
        Fault{"AttributeTwice", "graph(): %x = F() {a=1, a=2} return ()",
              "line 1, column 25: attribute 'a' is given twice"},
        Fault{"AttributeWithoutValue", "graph(): %x = F() {a=} return ()",
              "line 1, column 22: expected the value of an attribute, got '}'"},
        Fault{"MixedList", "graph(): %x = F() {a=[\"s\", 1]} return ()",
              "line 1, column 28: expected a string, got '1'"},
        Fault{"OpsetTwice", "opset 22\nopset 23\ngraph(): return ()", "line 2, column 7: opset '' is given twice"}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Types, ParseFault,
    testing::Values(Fault{"UnknownDtype", "graph(%x: f99[2]): return ()",
                          "line 1, column 11: expected a dtype such as f32 or i64, got 'f99'"},
                    Fault{"NoSizes", "graph(%x: f32): return ()",
                          "line 1, column 14: expected '[' and sizes behind a dtype, got ')'"},
                    Fault{"OpenSizes", "graph(%x: f32[2): return ()",
                          "line 1, column 14: expected ']' behind '2): return ()', got the end of the text"},
                    Fault{"SequenceOfSequences", "graph(%x: seq(seq(f32[2]))): return ()",
                          "line 1, column 26: the elements must be tensors, got seq(f32[2])"}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Literals, ParseFault,
    testing::Values(
        Fault{"LeftOutElements", "graph(%w: f32[99] = {...}): return ()",
              "line 1, column 22: the elements of this constant were left out; print with a larger max_elements"},
        Fault{"TooFewElements", "graph(%w: f32[2,2] = {1, 2}): return ()",
              "line 1, column 28: expected 4 elements for f32[2,2], got 2"},
        Fault{"SymbolicSizes", "graph(%w: f32[n] = {1}): return ()",
              "line 1, column 21: the sizes of a constant must be numbers, got f32[n]"},
        Fault{"FloatAmongIntegers", "graph(%w: i64[1] = {1.5}): return ()",
              "line 1, column 21: expected an integer for i64[1], got '1.5'"},
        Fault{"ElementOutOfRange", "graph(%w: u8[1] = {256}): return ()",
              "line 1, column 20: 256 is out of range for u8"},
        Fault{"IntegerOutOfRange", "graph(): %x = F() {a=9223372036854775808} return ()",
              "line 1, column 22: 9223372036854775808 is out of range"},
        Fault{"NotANumber", "graph(): %x = F() {a=1x} return ()", "line 1, column 22: expected a number, got '1x'"},
        Fault{"OpenString", "graph(): %x = F() {a=\"b} return ()",
              "line 1, column 22: expected '\"' at the end of a string, got the end of the text"},
        Fault{"UnknownEscape", "graph(): %x = F() {a=\"\\q\"} return ()",
              "line 1, column 24: expected one of the escapes \\\" \\\\ \\n \\r \\t \\xNN in a string"},
        Fault{"UnknownCharacter", "graph(): %x = F() ! return ()", "line 1, column 19: unexpected character '!'"},
        Fault{"UnknownWord", "graph(): %x = aten.f.default(maybe) return ()",
              "line 1, column 30: expected an argument, got 'maybe'"},
        Fault{"ValueWithoutName", "graph(% x): return ()", "line 1, column 7: expected a name behind '%'"}),
    case_name);

TEST(ParseFault, CarriesLineAndColumn) {
  try {
    parse_graph("graph():\n\n   ?");
    FAIL();
  } catch (const ParseError& error) {
    EXPECT_EQ(error.line(), 3u);
    EXPECT_EQ(error.column(), 4u);
  }
}

TEST(ParseFault, OfASizePointsIntoTheSize) {
  EXPECT_THAT([] { parse_graph("graph(%x: f32[2,n +]): return ()"); },
              testing::ThrowsMessage<ParseError>(testing::AllOf(
                  testing::StartsWith("line 1, column 20: expected a number"), testing::HasSubstr("'n +'"))));
}

TEST(ParseFault, EndsBracketsWithoutEndInsteadOfTheStack) {
  const std::string text = "graph(): %x = aten.f.default(" + std::string(100'000, '[');
  EXPECT_THAT([&] { parse_graph(text); },
              testing::ThrowsMessage<ParseError>(testing::HasSubstr("graphs and lists are nested more than 200 deep")));
}

}  // namespace
}  // namespace exportguard::ir
