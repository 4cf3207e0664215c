#include "exportguard/common/symbolic.h"

#include <gmock/gmock.h>

#include <limits>
#include <random>

#include "exportguard/common/errors.h"

namespace exportguard {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

SymExpr parse(std::string_view text) { return SymExpr::parse(text); }
std::string simplified(std::string_view text) { return parse(text).str(); }

const SymExpr a = SymExpr::symbol("a");
const SymExpr b = SymExpr::symbol("b");

TEST(SymExpr, SumsAreEqualInAnyOrder) {
  EXPECT_EQ(a + b, b + a);
  EXPECT_EQ(SymExpr(2) * (a + 1) - a, a + 2);
  EXPECT_EQ(a - a, SymExpr(0));
  EXPECT_EQ((a + b) * (a - b), a * a - b * b);
  EXPECT_NE(a + b, a * b);
  EXPECT_NE(a + 1, a + 2);
}

TEST(SymExpr, EqualExpressionsHashAlike) {
  EXPECT_EQ((a + b).hash(), (b + a).hash());
  EXPECT_EQ(floor_div(a + 5, 2).hash(), (floor_div(a + 1, 2) + 2).hash());
}

struct Printing {
  std::string name;
  std::string text;
  std::string expected;
};

class SymExprPrinting : public testing::TestWithParam<Printing> {};

TEST_P(SymExprPrinting, ReadsAndPrintsSimplified) {
  const Printing& sample = GetParam();
  EXPECT_EQ(simplified(sample.text), sample.expected);
  EXPECT_EQ(parse(sample.expected), parse(sample.text)) << "the printed text reads back as the same expression";
}

INSTANTIATE_TEST_SUITE_P(Samples, SymExprPrinting,
                         testing::ValuesIn(std::vector<Printing>{
                             {"Constant", "-12", "-12"},
                             {"SymbolWithDots", "past.0_k", "past.0_k"},
                             {"Sum", "seq + past", "past + seq"},
                             {"ConstantLast", "1 + seq", "seq + 1"},
                             {"Coefficient", "batch*2", "2*batch"},
                             {"NegativeAfterPositive", "-past + seq", "seq - past"},
                             {"ConstantLeadsANegative", "-s0 + 3", "3 - s0"},
                             {"NegativeConstantStaysLast", "-s0 - 3", "-s0 - 3"},
                             {"Power", "s0**2 + s0*s0*s1", "s0**2*s1 + s0**2"},
                             {"Parentheses", "((2*(a + 1)))", "2*a + 2"},
                             {"FloorDivOperator", "((s0//2))", "FloorDiv(s0, 2)"},
                             {"FloorOfAFraction", "floor(s0/2)", "FloorDiv(s0, 2)"},
                             {"FloorOfASumOfFractions", "floor(s0/2 + s1/3)", "FloorDiv(3*s0 + 2*s1, 6)"},
                             {"FloorOfFractionsThatAddUp", "floor(s0/2 + s1/2)", "FloorDiv(s0 + s1, 2)"},
                             {"CeilingOfAFraction", "ceiling(s0/2)", "FloorDiv(s0 + 1, 2)"},
                             {"FloorOfAnInteger", "floor(s0 + 1)", "s0 + 1"},
                             {"ExactFraction", "4*s0/2", "2*s0"},
                             {"ModFunction", "Mod(s0, 4)", "Mod(s0, 4)"},
                             {"ModOperator", "s0 % 4", "Mod(s0, 4)"},
                             {"PythonMod", "PythonMod(s0, 4)", "Mod(s0, 4)"},
                             {"CleanDiv", "CleanDiv(s0, 4)", "FloorDiv(s0, 4)"},
                             {"ModularIndexing", "ModularIndexing(s0, 2, 3)", "Mod(FloorDiv(s0, 2), 3)"},
                             {"MaxSortsItsArguments", "Max(s0, 1)", "Max(1, s0)"},
                             {"UnknownCall", "CeilToInt(IntTrueDiv(s0, 2))", "CeilToInt(IntTrueDiv(s0, 2))"},
                             {"CallWithoutArguments", "rank()", "rank()"},
                             {"DivisionBindsLeft", "a//2*2", "2*FloorDiv(a, 2)"},
                             {"MinusBindsLooserThanPower", "-a**2", "-a**2"}}),
                         [](const auto& sample) { return sample.param.name; });

class SymExprFolding : public testing::TestWithParam<Printing> {};

TEST_P(SymExprFolding, HasOneForm) { EXPECT_EQ(simplified(GetParam().text), GetParam().expected); }

INSTANTIATE_TEST_SUITE_P(Samples, SymExprFolding,
                         testing::ValuesIn(std::vector<Printing>{
                             {"FloorDivOfAMultiple", "FloorDiv(4*a, 2)", "2*a"},
                             {"FloorDivByOne", "FloorDiv(a, 1)", "a"},
                             {"FloorDivOfConstants", "FloorDiv(-7, 2)", "-4"},
                             {"FloorDivTakesOutMultiples", "FloorDiv(4*a + b + 5, 2)", "2*a + FloorDiv(b + 1, 2) + 2"},
                             {"FloorDivOfAConvolution", "FloorDiv(h - 1, 2) + 1", "FloorDiv(h + 1, 2)"},
                             {"FloorDivCancelsAFactor", "FloorDiv(2*a + 3, 4)", "FloorDiv(a + 1, 2)"},
                             {"FloorDivNested", "FloorDiv(FloorDiv(a, 2), 3)", "FloorDiv(a, 6)"},
                             {"FloorDivBySymbol", "FloorDiv(a*b + 3*a + 1, a)", "b + FloorDiv(1, a) + 3"},
                             {"FloorDivByItself", "FloorDiv(2*a + 2*b, a + b)", "2"},
                             {"FloorDivOfANegative", "-FloorDiv(-a, 2)", "FloorDiv(a + 1, 2)"},
                             {"FloorDivByANegative", "FloorDiv(4*a, -2)", "-2*a"},
                             {"FloorDivByZeroStays", "FloorDiv(a, 0)", "FloorDiv(a, 0)"},
                             {"CeilDiv", "CeilDiv(a, 4)", "FloorDiv(a + 3, 4)"},
                             {"ModOfAMultiple", "Mod(4*a, 2)", "0"},
                             {"ModOfOne", "Mod(a, 1)", "0"},
                             {"ModOfConstants", "Mod(-7, 3)", "2"},
                             {"ModDropsMultiples", "Mod(4*a + b + 9, 4)", "Mod(b + 1, 4)"},
                             {"ModCancelsAFactor", "Mod(2*a + 1, 4)", "2*Mod(a, 2) + 1"},
                             {"ModOfMod", "Mod(Mod(a, 4), 4)", "Mod(a, 4)"},
                             {"ModBySymbol", "Mod(a*b + 1, a)", "Mod(1, a)"},
                             {"MaxOfOne", "Max(a, a)", "a"},
                             {"MaxFlattensAndFolds", "Max(3, Max(b, a), 1)", "Max(3, a, b)"},
                             {"MaxDropsWhatIsSmallerByAConstant", "Max(a, a + 1, a - 2)", "a + 1"},
                             {"MinOfConstants", "Min(3, 1, 2)", "1"},
                             {"MinDropsWhatIsLargerByAConstant", "Min(a + b, b + a + 1)", "a + b"},
                             {"PowOfZero", "Pow(a, 0)", "1"},
                             {"PowOfASum", "(a + 1)**2", "a**2 + 2*a + 1"},
                             {"PowWithASymbolStays", "2**a", "Pow(2, a)"}}),
                         [](const auto& sample) { return sample.param.name; });

TEST(SymExpr, FoldingKeepsTheValueOfRandomExpressions) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> small(-6, 6);
  for (int trial = 0; trial < 2000; ++trial) {
    const int p = small(random), q = small(random), r = small(random);
    const int divisor = small(random);
    if (divisor == 0) continue;
    const SymExpr inner = a * p + b * q + r;
    const std::int64_t x = small(random), y = small(random);
    const std::int64_t number = x * p + y * q + r;
    const auto quotient = static_cast<std::int64_t>(std::floor(static_cast<double>(number) / divisor));
    const std::map<std::string, std::int64_t> values{{"a", x}, {"b", y}};
    EXPECT_EQ(floor_div(inner, divisor).evaluate(values), quotient) << floor_div(inner, divisor).str();
    EXPECT_EQ(mod(inner, divisor).evaluate(values), number - quotient * divisor) << mod(inner, divisor).str();
    EXPECT_EQ(SymExpr::call("CeilDiv", {inner, divisor}).evaluate(values),
              static_cast<std::int64_t>(std::ceil(static_cast<double>(number) / divisor)));
    EXPECT_EQ(parse(floor_div(inner, divisor).str()), floor_div(inner, divisor));
    EXPECT_EQ(parse(mod(inner, divisor).str()), mod(inner, divisor));
  }
}

TEST(SymExpr, PartsTellHowToComputeIt) {
  const std::vector<SymExpr::Term> terms = parse("2*a*b + FloorDiv(a, 2) - 3").terms();
  ASSERT_EQ(terms.size(), 3U);
  EXPECT_EQ(terms[0].coefficient, 2);
  EXPECT_THAT(terms[0].factors, ElementsAre(a, b));
  EXPECT_EQ(terms[1].factors.front().as_call()->first, "FloorDiv");
  EXPECT_THAT(terms[1].factors.front().as_call()->second, ElementsAre(a, SymExpr(2)));
  EXPECT_EQ(terms[2].coefficient, -3);
  EXPECT_TRUE(terms[2].factors.empty());
  EXPECT_TRUE(SymExpr(0).terms().empty());
}

TEST(SymExpr, SymbolAndConstantAreTellable) {
  EXPECT_EQ(a.symbol_name(), "a");
  EXPECT_EQ((a + 1).symbol_name(), std::nullopt);
  EXPECT_EQ((a * 2).symbol_name(), std::nullopt);
  EXPECT_EQ(SymExpr(5).constant(), 5);
  EXPECT_EQ(a.constant(), std::nullopt);
  EXPECT_EQ((a + 1).as_call(), std::nullopt);
}

TEST(SymExpr, SymbolsAreFoundInsideCalls) {
  EXPECT_THAT(parse("Max(z, FloorDiv(y, x)) + a*a").symbols(), ElementsAre("a", "x", "y", "z"));
}

TEST(SymExpr, SubstitutionFoldsAgain) {
  EXPECT_EQ(floor_div(a, 2).substitute({{"a", b * 4}}), b * 2);
  EXPECT_EQ((a + b).substitute({{"a", b}, {"b", a}}), a + b) << "all at once, not one after the other";
}

TEST(SymExpr, EvaluationNeedsEverySymbolAndKnownFunctions) {
  EXPECT_EQ(parse("Max(a, 2) * Mod(a, 3)").evaluate({{"a", 5}}), 10);
  EXPECT_EQ((a + b).evaluate({{"a", 5}}), std::nullopt);
  EXPECT_EQ(floor_div(a, b).evaluate({{"a", 5}, {"b", 0}}), std::nullopt);
  EXPECT_EQ(parse("Unknown(a)").evaluate({{"a", 5}}), std::nullopt);
}

TEST(SymExpr, OverflowIsAnErrorRatherThanAWrongNumber) {
  const SymExpr largest = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT([&] { (void)(largest + 1); }, ThrowsMessage<InvalidArgument>(HasSubstr("does not fit into 64 bits")));
  EXPECT_THROW((void)(largest * a * 2), InvalidArgument);
  EXPECT_THROW((void)floor_div(std::numeric_limits<std::int64_t>::min(), -1), InvalidArgument);
  EXPECT_EQ(SymExpr(std::numeric_limits<std::int64_t>::min()).str(), "-9223372036854775808");
}

TEST(SymExpr, BadTextIsRefusedWithThePosition) {
  EXPECT_THAT([] { (void)parse("a +"); },
              ThrowsMessage<ParseError>(HasSubstr("line 1, column 4: expected a number, a name or '(', got the end")));
  EXPECT_THAT([] { (void)parse("a b"); }, ThrowsMessage<ParseError>(HasSubstr("column 3: unexpected 'b'")));
  EXPECT_THAT([] { (void)parse("(a"); }, ThrowsMessage<ParseError>(HasSubstr("expected ')'")));
  EXPECT_THAT([] { (void)parse("99999999999999999999"); }, ThrowsMessage<ParseError>(HasSubstr("64 bits")));
  EXPECT_THAT([] { (void)parse("1.5*a"); }, ThrowsMessage<ParseError>(HasSubstr("unexpected '.' in an integer")));
  EXPECT_THAT([] { (void)parse("Mod(a)"); }, ThrowsMessage<ParseError>(HasSubstr("Mod takes 2 arguments, got 1")));
  EXPECT_THROW((void)parse(std::string(100000, '(')), ParseError);
}

TEST(SymExpr, ANameThatCouldNotBeReadBackIsRefused) {
  EXPECT_THAT([] { (void)SymExpr::symbol("batch size"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("'batch size' cannot name a dimension")));
  EXPECT_THROW((void)SymExpr::symbol(""), InvalidArgument);
}

}  // namespace
}  // namespace exportguard
