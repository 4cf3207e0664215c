#include "exportguard/optimizer/graph_pattern.h"

#include <gmock/gmock.h>

#include "exportguard/common/errors.h"
#include "optimizer/optimized.h"

namespace exportguard::optimizer {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

GraphPattern rule(std::string_view match, std::vector<Hole> holes = {}) {
  const auto model = std::make_shared<ir::Model>();
  model->graph = ir::parse_graph(match);
  return {.name = "own", .match = model, .holes = std::move(holes)};
}

/// One node of the first and the last thing that was met.
GraphPattern to_max(std::string_view match, std::vector<Hole> holes = {}) {
  GraphPattern pattern = rule(match, std::move(holes));
  pattern.replacement = [](ir::Builder& builder, const Captures& captures) {
    return std::vector<ir::Value*>{builder.op("Max", {captures.values.front(), captures.values.back()})};
  };
  return pattern;
}

Optimized with(GraphPattern pattern, std::string_view text) {
  PatternTable table;
  table.add(pattern_of(std::move(pattern)));
  ir::Model model;
  model.graph = ir::parse_graph(text);
  model.opsets[""] = 22;
  Report report = optimize(model, {.table = &table});
  ir::verify(model);
  const std::string printed = ir::print(*model.graph, {.types = false});
  return {printed.substr(printed.find('\n') + 1), std::move(report)};
}

PatternReport report_of(const Optimized& result) {
  for (const PatternReport& one : result.report.patterns) {
    if (one.name == "own") return one;
  }
  return {};
}

constexpr std::string_view kSumOfProduct = "graph(%x, %y):\n  %p = Mul(%x, %y)\n  %s = Add(%p, %x)\n  return (%s)\n";

TEST(GraphPattern, OperandsAreTriedInBothOrdersOfEveryNode) {
  for (const std::string_view sum : {"Add(%p, %a)", "Add(%a, %p)"}) {
    for (const std::string_view product : {"Mul(%a, %b)", "Mul(%b, %a)"}) {
      const std::string graph = "graph(%a: f32[n], %b: f32[n]):\n  %p: f32[n] = " + std::string(product) +
                                "\n  %s: f32[n] = " + std::string(sum) + "\n  return (%s)\n";
      EXPECT_EQ(with(to_max(kSumOfProduct), graph).nodes, "  %s = Max(%a, %b)\n  return (%s)\n") << graph;
    }
  }
}

TEST(GraphPattern, AValueThatIsReadElsewhereIsKept) {
  const std::string_view graph = R"(
graph(%a: f32[n], %b: f32[n]):
  %p: f32[n] = Mul(%a, %b)
  %s: f32[n] = Add(%p, %a)
  return (%s, %p)
)";
  const Optimized result = with(to_max(kSumOfProduct), graph);
  EXPECT_EQ(result.nodes, unchanged(graph));
  EXPECT_TRUE(declined(result.report, "own", "a value between is read elsewhere"));
}

TEST(GraphPattern, OneHoleMeetsOneValue) {
  const std::string_view graph = R"(
graph(%a: f32[n], %b: f32[n], %c: f32[n]):
  %p: f32[n] = Mul(%a, %b)
  %s: f32[n] = Add(%p, %c)
  return (%s)
)";
  const Optimized result = with(to_max(kSumOfProduct), graph);
  EXPECT_EQ(result.nodes, unchanged(graph));
  EXPECT_TRUE(declined(result.report, "own", "two operands that must be one value are not"));
}

TEST(GraphPattern, ANumberMeetsItselfInEveryDtype) {
  const std::string_view match = "graph(%x, %c: f32[] = {0.1}):\n  %y = Mul(%x, %c)\n  return (%y)\n";
  for (const std::string_view dtype : {"f32", "f16", "f64"}) {
    const std::string text = std::string(dtype);
    const std::string graph =
        "graph(%a: " + text + "[n], %c: " + text + "[] = {0.1}):\n  %y: " + text + "[n] = Mul(%a, %c)\n  return (%y)\n";
    const bool is_met = with(to_max(match), graph).nodes.find("Max") != std::string::npos;
    EXPECT_TRUE(is_met || dtype == "f64") << graph;  // 0.1 of f32 is another number in f64
  }
  const std::string_view other = "graph(%a: f32[n], %c: f32[] = {0.2}):\n  %y: f32[n] = Mul(%a, %c)\n  return (%y)\n";
  EXPECT_TRUE(declined(with(to_max(match), other).report, "own", "a constant is another number"));
}

TEST(GraphPattern, AttributesMustBeThoseOfTheMatch) {
  const std::string_view match = "graph(%x):\n  %y = Softmax(%x) {axis=1}\n  return (%y)\n";
  const auto applied = [&](std::string_view attributes) {
    const std::string graph =
        "graph(%a: f32[n,m]):\n  %y: f32[n,m] = Softmax(%a)" + std::string(attributes) + "\n  return (%y)\n";
    return report_of(with(to_max(match), graph)).applied;
  };
  EXPECT_EQ(applied(" {axis=1}"), 1U);
  EXPECT_EQ(applied(" {axis=0}"), 0U);
  EXPECT_EQ(applied(""), 0U);
}

TEST(GraphPattern, AnAttributeWithAHoleIsCaptured) {
  GraphPattern pattern = rule("graph(%x):\n  %y = LeakyRelu(%x)\n  return (%y)\n");
  pattern.attributes = {{"slope", "LeakyRelu", "alpha"}};
  pattern.replacement = [](ir::Builder& builder, const Captures& captures) {
    const double slope = std::get<double>(*captures.attributes.at("slope"));
    return std::vector<ir::Value*>{builder.op("Elu", {captures.values[0]}, {{"alpha", slope}})};
  };
  EXPECT_EQ(with(pattern, "graph(%a: f32[n]):\n  %y: f32[n] = LeakyRelu(%a) {alpha=0.5}\n  return (%y)\n").nodes,
            "  %y = Elu(%a) {alpha=0.5}\n  return (%y)\n");
}

TEST(GraphPattern, SizesWithANameAreTheSameSize) {
  const Hole square{.type = ir::Type::tensor(DType::kFloat32, ir::Shape{SymExpr::symbol("k"), SymExpr::symbol("k")})};
  const std::string_view match = "graph(%x):\n  %y = Transpose(%x) {perm=[1, 0]}\n  return (%y)\n";
  const auto applied = [&](std::string_view type) {
    const std::string graph =
        "graph(%a: " + std::string(type) + "):\n  %y = Transpose(%a) {perm=[1, 0]}\n  return (%y)\n";
    return report_of(with(to_max(match, {square}), graph)).applied;
  };
  EXPECT_EQ(applied("f32[n,n]"), 1U);
  EXPECT_EQ(applied("f32[3,3]"), 1U);
  EXPECT_EQ(applied("f32[n,m]"), 0U);
  EXPECT_EQ(applied("f64[n,n]"), 0U);
  EXPECT_EQ(applied("f32[*]"), 0U);
}

TEST(GraphPattern, ConstantHolesAndListsOfSizesAreLookedAt) {
  const SymExpr heads = SymExpr::symbol("heads");
  const Hole list{.is_constant = true, .elements = ir::Elements{SymExpr(0), SymExpr(0), heads, SymExpr(-1)}};
  const std::string_view match = "graph(%x, %s):\n  %y = Reshape(%x, %s)\n  return (%y)\n";
  const auto refusals = [&](std::string_view sizes) {
    const std::string graph =
        "graph(%a: f32[b,n,12], " + std::string(sizes) + "):\n  %y = Reshape(%a, %s)\n  return (%y)\n";
    return report_of(with(to_max(match, {Hole{}, list}), graph)).refusals;
  };
  EXPECT_THAT(refusals("%s: i64[3] = {0, 0, 12}"),
              testing::Contains(testing::Key("s is not known to hold those sizes")));
  EXPECT_THAT(refusals("%s: i64[4]"), testing::Contains(testing::Key("s is not constant")));
}

TEST(GraphPattern, AConditionDeclinesWithItsReason) {
  GraphPattern pattern = to_max(kSumOfProduct);
  pattern.condition = [](const Captures& captures) {
    return captures.values[0]->dtype() == DType::kFloat16 ? std::string() : std::string("not in this dtype");
  };
  const std::string_view graph = R"(
graph(%a: f32[n], %b: f32[n]):
  %p: f32[n] = Mul(%a, %b)
  %s: f32[n] = Add(%p, %a)
  return (%s)
)";
  EXPECT_TRUE(declined(with(pattern, graph).report, "own", "not in this dtype"));
}

TEST(GraphPattern, AReplacementOfAnotherTypeIsAnErrorThatLeavesTheGraph) {
  GraphPattern pattern = rule("graph(%x):\n  %y = Neg(%x)\n  return (%y)\n");
  pattern.replacement = [](ir::Builder& builder, const Captures& captures) {
    return std::vector<ir::Value*>{builder.cast(captures.values[0], DType::kFloat64)};
  };
  PatternTable table;
  table.add(pattern_of(pattern));
  const std::string_view text = "graph(%a: f32[n]):\n  %y: f32[n] = Neg(%a)\n  return (%y)\n";
  ir::Model model;
  model.graph = ir::parse_graph(text);
  model.opsets[""] = 22;
  EXPECT_THAT(
      [&] { (void)optimize(model, {.table = &table}); },
      ThrowsMessage<InvalidArgument>(HasSubstr("output 0 of the replacement is f64[n], it takes the place of y")));
  ir::verify(model);
  EXPECT_EQ(ir::print(*model.graph), ir::normalize(text));
}

TEST(GraphPattern, ARuleThatMatchesWhatItMakesIsAnError) {
  GraphPattern pattern = rule("graph(%x, %y):\n  %z = Add(%x, %y)\n  return (%z)\n");
  pattern.replacement = [](ir::Builder& builder, const Captures& captures) {
    return std::vector<ir::Value*>{builder.op("Add", {captures.values[1], captures.values[0]})};
  };
  EXPECT_THAT(
      [&] { (void)with(pattern, "graph(%a: f32[n], %b: f32[n]):\n  %y: f32[n] = Add(%a, %b)\n  return (%y)\n"); },
      ThrowsMessage<InvalidArgument>(HasSubstr("pattern 'own' was applied again and again")));
}

TEST(GraphPattern, SeveralOutputsAreReplacedTogether) {
  GraphPattern pattern = rule("graph(%x, %y):\n  %s = Add(%x, %y)\n  %r = Relu(%s)\n  return (%r, %s)\n");
  pattern.replacement = [](ir::Builder& builder, const Captures& captures) {
    ir::Value* sum = builder.op("Sum", {captures.values[0], captures.values[1]});
    return std::vector<ir::Value*>{builder.op("Relu", {sum}), sum};
  };
  EXPECT_EQ(with(pattern, R"(
graph(%a: f32[n], %b: f32[n]):
  %s: f32[n] = Add(%a, %b)
  %r: f32[n] = Relu(%s)
  %t: f32[n] = Neg(%s)
  return (%r, %t)
)")
                .nodes,
            "  %s = Sum(%a, %b)\n  %r = Relu(%s)\n  %t = Neg(%s)\n  return (%r, %t)\n");
  const std::string_view early = R"(
graph(%a: f32[n], %b: f32[n]):
  %s: f32[n] = Add(%a, %b)
  %t: f32[n] = Neg(%s)
  %r: f32[n] = Relu(%s)
  return (%r, %t)
)";
  EXPECT_TRUE(declined(with(pattern, early).report, "own", "an output is read before the last node"));
}

TEST(GraphPattern, MatchesThatSayTooLittleAreRefused) {
  const auto refused = [](GraphPattern pattern, const char* text) {
    EXPECT_THAT([&] { (void)pattern_of(pattern); }, ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  refused(rule("graph(%x):\n  %y = Neg(%x)\n  return (%y)\n"), "needs a match graph and a replacement");
  refused(to_max("graph(%x):\n  return (%x)\n"), "the match has no node");
  refused(to_max("graph(%x, %z):\n  %y = Neg(%x)\n  return (%y)\n"), "nothing in the match reads 'z'");
  refused(to_max("graph(%x):\n  %y = Neg(%x)\n  return (%x)\n"), "is none of its nodes' results");
  refused(to_max("graph(%x):\n  %y = Neg(%x)\n  %z = Abs(%x)\n  return (%y, %z)\n"), "write patterns of their own");
  refused(to_max("graph(%x):\n  %y = Neg(%x)\n  return (%y)\n", {Hole{}, Hole{}}), "1 inputs, got 2 holes");
}

}  // namespace
}  // namespace exportguard::optimizer
