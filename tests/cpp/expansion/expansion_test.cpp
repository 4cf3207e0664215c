#include "exportguard/expansion/expansion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "exportguard/ir/text.h"
#include "exportguard/ir/verify.h"

namespace exportguard::expansion {
namespace {

using ::testing::ElementsAre;

ir::Model model_of(std::string_view graph) {
  ir::Model model;
  model.graph = ir::parse_graph(graph);
  return model;
}

bool is_aten(const ir::Node& node) { return node.domain() == "aten"; }

/// `own.twice` is an addition of its operand to itself.
std::unique_ptr<ir::Graph> doubled(const Call& call) {
  if (call.target != "own.twice.default") return nullptr;
  return ir::parse_graph("graph(%a: " + call.operands.at(0).str() + "):\n  %b: " + call.operands.at(0).str() +
                         " = aten.add.Tensor(%a, %a)\n  return (%b)");
}

TEST(Expansion, ReplacesWhatIsNotKnownUnderItsNameAndType) {
  ir::Model model = model_of(R"(
    graph(%x: f32[batch,3]):
      %y: f32[batch,3] = own.twice.default(%x)
      %z: f32[batch,3] = aten.relu.default(%y)
      return (%z))");
  EXPECT_EQ(expand(model, {doubled, is_aten}), 1U);
  ir::verify(model);
  EXPECT_EQ(ir::print(*model.graph), ir::normalize(R"(
    graph(%x: f32[batch,3]):
      %y: f32[batch,3] = aten.add.Tensor(%x, %x)
      %z: f32[batch,3] = aten.relu.default(%y)
      return (%z))"));
}

TEST(Expansion, TracesEqualCallsOnceWhateverTheirSymbols) {
  ir::Model model = model_of(R"(
    graph(%x: f32[batch,3], %y: f32[seq,3], %z: f32[seq,4]):
      %a: f32[batch,3] = own.twice.default(%x)
      %b: f32[seq,3] = own.twice.default(%y)
      %c: f32[seq,4] = own.twice.default(%z)
      return (%a, %b, %c))");
  std::vector<std::string> traced;
  const Trace counting = [&](const Call& call) {
    traced.push_back(call.operands.at(0).str());
    return doubled(call);
  };
  EXPECT_EQ(expand(model, {counting, is_aten}), 3U);
  EXPECT_THAT(traced, ElementsAre("f32[d0,3]", "f32[d0,4]"));
}

TEST(Expansion, TellsCallsApartByTheirLiterals) {
  ir::Model model = model_of(R"(
    graph(%x: f32[3]):
      %a: f32[3] = own.scaled.default(%x, 1)
      %b: f32[3] = own.scaled.default(%x, 1.0)
      %c: f32[3] = own.scaled.default(%x, true)
      %d: f32[3] = own.scaled.default(%x, "1")
      %e: f32[3] = own.scaled.default(%x, [1])
      %f: f32[3] = own.scaled.default(%x, @1)
      %g: f32[3] = own.scaled.default(%x, 1)
      return (%a, %b, %c, %d, %e, %f, %g))");
  std::size_t calls = 0;
  const Trace counting = [&](const Call&) {
    ++calls;
    return nullptr;
  };
  EXPECT_EQ(expand(model, {counting, is_aten}), 0U);
  EXPECT_EQ(calls, 6U);
}

TEST(Expansion, OfAnOperatorIntoItselfStops) {
  ir::Model model = model_of("graph(%x: f32[3]):\n  %a: f32[3] = own.loop.default(%x)\n  return (%a)");
  const Trace itself = [](const Call&) {
    return ir::parse_graph("graph(%x: f32[3]):\n  %a: f32[3] = own.loop.default(%x)\n  return (%a)");
  };
  EXPECT_EQ(expand(model, {itself, is_aten}), 1U);
  ir::verify(model);
}

TEST(Expansion, ReachesBodies) {
  ir::Model model = model_of(R"(
    graph(%p: bool[], %x: f32[n]):
      %y: f32[n] = higher_order.cond(%p, None, None, [%x]) {true_fn=graph(%a: f32[n]):
          %b: f32[n] = own.twice.default(%a)
          return (%b), false_fn=graph(%c: f32[n]):
          return (%c)}
      return (%y))");
  EXPECT_EQ(expand(model, {doubled, is_aten}), 1U);
  ir::verify(model);
}

}  // namespace
}  // namespace exportguard::expansion
