#include "exportguard/lowering/size_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exportguard/ir/text.h"
#include "exportguard/ir/verify.h"

namespace exportguard::lowering {
namespace {

using Relation = SizeCheck::Relation;

constexpr std::string_view kPicture = R"(
    graph(%ids: i64[h], %x: f32[2, h, h], %unused: i64[]):
      %y: f32[2, h, h] = Neg(%x)
      %z: i64[h] = Neg(%ids)
      return (%y, %z))";

SizeCheck on_picture(std::vector<Relation> any_of) {
  return {"h == w", std::move(any_of), {{"s0", "x", 1}, {"s1", "x", 2}}};
}

ir::Model parsed(std::string_view text) {
  ir::Model model;
  model.graph = ir::parse_graph(text);
  return model;
}

std::string text_of(const ir::Model& model) {
  ir::verify(model);
  const std::string printed = ir::print(*model.graph, {.types = false});
  return printed.substr(printed.find('\n') + 1);
}

TEST(SizeChecks, TheCheapestInputIsThereWhereSizesAreEqualThatHaveOneSymbol) {
  ir::Model model = parsed(kPicture);
  EXPECT_EQ(refuse_other_sizes(model, {on_picture({{"Equal", SymExpr::symbol("s0"), SymExpr::symbol("s1")}})}), 1U);
  EXPECT_EQ(text_of(model), R"(  %0 = Shape(%x) {start=1, end=2}
  %1 = Shape(%x) {start=2, end=3}
  %2 = Equal(%0, %1)
  %3 = Shape(%ids)
  %4 = Where(%2, %3, %"constant.i64[-2]")
  %5 = Reshape(%ids, %4) {allowzero=1}
  %y = Neg(%x)
  %z = Neg(%5)
  return (%y, %z)
)");
}

TEST(SizeChecks, OneOfSeveralRelationsIsEnoughAndAllConditionsAreAsked) {
  ir::Model model = parsed(kPicture);
  const SymExpr h = SymExpr::symbol("s0");
  const SizeCheck either = on_picture({{"Less", h, 4}, {"Equal", mod(h, 2), 0, false}});
  const SizeCheck large = on_picture({{"GreaterOrEqual", SymExpr::symbol("s1"), 3}});
  EXPECT_EQ(refuse_other_sizes(model, {either, large}), 2U);
  const std::string text = text_of(model);
  EXPECT_THAT(text, testing::HasSubstr("Mod(%0, "));
  EXPECT_THAT(text, testing::ContainsRegex("= Not\\(.*= Or\\(.*= GreaterOrEqual\\(.*= And\\("));
}

TEST(SizeChecks, TheNodeSaysWhatWasAskedFor) {
  ir::Model model = parsed(kPicture);
  const SizeCheck equal = on_picture({{"Equal", SymExpr::symbol("s0"), SymExpr::symbol("s1")}});
  SizeCheck large = on_picture({{"GreaterOrEqual", SymExpr::symbol("s1"), 3}});
  large.condition = "w >= 3";
  refuse_other_sizes(model, {equal, large});
  const ir::Value& taken = model.graph->output(1).producer()->input(0);
  EXPECT_EQ(taken.producer()->name(), "only sizes with h == w and w >= 3");
  EXPECT_EQ(taken.type().dtype, model.graph->input(0).type().dtype);
  EXPECT_NE(taken.type().shape, model.graph->input(0).type().shape);  // or it would be left out
}

TEST(SizeChecks, AxesThatAreCheckedGoByTheirNames) {
  ir::Model model = parsed(kPicture);
  const SizeCheck equal = on_picture({{"Equal", SymExpr::symbol("s0"), SymExpr::symbol("s1")}});
  refuse_other_sizes(model, {equal}, {{"x", 1, "h"}, {"x", 2, "w"}, {"ids", 0, "w"}, {"unused", 0, "v"}});
  ir::verify(model);
  const SymExpr h = SymExpr::symbol("h"), w = SymExpr::symbol("w");
  EXPECT_EQ(*model.graph->input(1).type().shape, (ir::Shape{2, h, w}));
  EXPECT_EQ(*model.graph->input(0).type().shape, (ir::Shape{w}));
  EXPECT_EQ(*model.graph->output(0).type().shape, (ir::Shape{2, h, h}));
}

TEST(SizeChecks, ANameThatStandsForSomethingElseIsNotTaken) {
  ir::Model model = parsed("graph(%x: f32[h, h], %y: f32[w]):\n  %z: f32[h, h] = Neg(%x)\n  return (%z, %y)");
  const SizeCheck equal = {
      "h == w", {{"Equal", SymExpr::symbol("s0"), SymExpr::symbol("s1")}}, {{"s0", "x", 0}, {"s1", "x", 1}}};
  refuse_other_sizes(model, {equal}, {{"x", 0, "h"}, {"x", 1, "w"}});
  const SymExpr h = SymExpr::symbol("h");
  EXPECT_EQ(*model.graph->input(0).type().shape, (ir::Shape{h, h}));
}

TEST(SizeChecks, SizesThatNeedNotBeEqualAreForgotten) {
  ir::Model model = parsed(R"(
    graph(%a: f32[2, n], %b: f32[2, n], %c: f32[m]):
      %y: f32[2, n] = Add(%a, %b)
      %z: f32[m] = Neg(%c)
      return (%y, %z))");
  const SymExpr first = SymExpr::symbol("s0"), second = SymExpr::symbol("s1");
  const SizeCheck broadcast = {"n == k",
                               {{"Equal", first, second}, {"Equal", first, 1}, {"Equal", second, 1}},
                               {{"s0", "a", 1}, {"s1", "b", 1}}};
  refuse_other_sizes(model, {broadcast}, {{"a", 1, "n"}, {"b", 1, "k"}});
  ir::verify(model);
  EXPECT_EQ(*model.graph->input(1).type().shape, (ir::Shape{2, SymExpr::symbol("k")}));
  const ir::Shape& sum = *model.graph->output(0).type().shape;
  EXPECT_EQ(sum[0], ir::Dim(2));
  EXPECT_THAT(*sum[1].symbol_name(), testing::Not(testing::AnyOf("n", "k", "m")));
  EXPECT_EQ(*model.graph->output(1).type().shape, (ir::Shape{SymExpr::symbol("m")}));
}

TEST(SizeChecks, AnInputThatIsAnOutputIsCheckedToo) {
  ir::Model model = parsed("graph(%x: f32[n]):\n  return (%x)");
  const SizeCheck check = {"n > 2", {{"Greater", SymExpr::symbol("s0"), 2}}, {{"s0", "x", 0}}};
  EXPECT_EQ(refuse_other_sizes(model, {check}), 1U);
  ir::verify(model);
  EXPECT_EQ(model.graph->output(0).producer()->op(), "Reshape");
}

TEST(SizeChecks, WhatHasNoCounterpartIsNotChecked) {
  ir::Model model = parsed(kPicture);
  const std::string before = text_of(model);
  const SizeCheck odd = on_picture({{"Equal", SymExpr::call("Unheard", {SymExpr::symbol("s0")}), 0}});
  const SizeCheck of_data = on_picture({{"Equal", SymExpr::symbol("u0"), 0}});
  EXPECT_EQ(refuse_other_sizes(model, {}), 0U);
  EXPECT_EQ(refuse_other_sizes(model, {odd, of_data}), 0U);
  EXPECT_EQ(text_of(model), before);
}

TEST(SizeChecks, AnOutputIsCheckedWhereNothingReadsAnInput) {
  ir::Model model = parsed("graph(%x: f32[n]):\n  %y: i64[1] = Constant() {value_ints=[1]}\n  return (%y)");
  EXPECT_EQ(refuse_other_sizes(model, {{"n > 2", {{"Greater", SymExpr::symbol("s0"), 2}}, {{"s0", "x", 0}}}}), 1U);
  ir::verify(model);
  EXPECT_EQ(model.graph->output(0).producer()->op(), "Reshape");
}

TEST(SizeChecks, AnInputThatIsNotThereIsNamed) {
  ir::Model model = parsed(kPicture);
  const SizeCheck check = {"n > 2", {{"Greater", SymExpr::symbol("s0"), 2}}, {{"s0", "pixels", 0}}};
  EXPECT_THAT([&] { refuse_other_sizes(model, {check}); },
              testing::ThrowsMessage<GraphError>(testing::HasSubstr("no input pixels")));
}

}  // namespace
}  // namespace exportguard::lowering
