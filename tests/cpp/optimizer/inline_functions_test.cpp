#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "exportguard/common/errors.h"
#include "exportguard/ir/text.h"
#include "exportguard/ir/verify.h"
#include "exportguard/optimizer/optimize.h"

namespace exportguard::optimizer {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::string_view kFunctions = R"(
function own::twice(%a) opsets(20):
  %b = Add(%a, %a)
  return (%b)
function own::fourfold(%a) opsets(20, own 1):
  %b = own::twice(%a)
  %c = own::twice(%b)
  return (%c)
)";

ir::Model model_with(std::string_view graph, std::string_view functions) {
  return ir::parse_model("opset 20\nopset own 1\n" + std::string(graph) + std::string(functions));
}

std::string inlined(ir::Model model) {
  (void)optimize(model, {.only = {"dead_code"}, .inlines_functions = true});
  ir::verify(model);
  return ir::print(model, {.types = false});
}

TEST(InlineFunctions, CallsWithinCallsAreWrittenOut) {
  const std::string text =
      inlined(model_with("graph(%x: f32[n]):\n  %y = own::fourfold(%x)\n  return (%y)\n", kFunctions));
  EXPECT_THAT(text, HasSubstr("Add(%x, %x)"));
  EXPECT_THAT(text, testing::Not(HasSubstr("own::")));
}

// The body was taken from the first layer; its nodes tell of the layer that calls them.
TEST(InlineFunctions, NodesStandInTheModuleOfTheirCall) {
  ir::Model model = model_with(
      "graph(%x: f32[n]):\n  %y = own::twice(%x)\n  %z = own::twice(%y)\n  %w = own::twice(%z)\n  return (%w)\n",
      kFunctions);
  const auto place = [](ir::Node& node, std::string_view module) {
    node.set_source(ir::intern({.target = "", .module = module, .type = "", .file = "m.py", .line = 3, .code = ""}));
  };
  std::size_t layer = 1;
  for (ir::Node& node : *model.graph) place(node, "layers." + std::to_string(layer++ * 5));
  for (ir::Function& function : model.functions) {
    if (function.name == "twice") place(*function.body->first(), "layers.5.mlp.up");
  }
  (void)optimize(model, {.only = {"dead_code"}, .inlines_functions = true});
  std::vector<std::string> modules;
  for (const ir::Node& node : *model.graph) modules.push_back(node.source()->where());
  EXPECT_THAT(modules,
              testing::ElementsAre("layers.5.mlp.up, m.py:3", "layers.10.mlp.up, m.py:3", "layers.15.mlp.up, m.py:3"));
}

TEST(InlineFunctions, NestedGraphsAreLookedInto) {
  const std::string text = inlined(model_with(R"(graph(%x: f32[n], %p: bool[]):
  %o = If(%p) {then_branch=graph():
      %y = own::twice(%x)
      return (%y), else_branch=graph():
      %z = Neg(%x)
      return (%z)}
  return (%o)
)",
                                              kFunctions));
  EXPECT_THAT(text, HasSubstr("Add(%x, %x)"));
}

TEST(InlineFunctions, TypesAreKnownAfterwards) {
  ir::Model model = model_with("graph(%x: f32[n]):\n  %y = own::fourfold(%x)\n  return (%y)\n", kFunctions);
  (void)optimize(model, {.inlines_functions = true});
  EXPECT_EQ(model.graph->output(0).type().str(), "f32[n]");
}

TEST(InlineFunctions, AFunctionOfAnotherOpsetStays) {
  const std::string text = inlined(model_with("graph(%x: f32[n]):\n  %y = own::old(%x)\n  return (%y)\n",
                                              "function own::old(%a) opsets(18):\n  %b = Neg(%a)\n  return (%b)\n"));
  EXPECT_THAT(text, HasSubstr("own::old(%x)"));
}

TEST(InlineFunctions, AFunctionThatCallsItselfIsAnError) {
  EXPECT_THAT(
      [] {
        (void)inlined(model_with("graph(%x: f32[n]):\n  %y = own::loop(%x)\n  return (%y)\n",
                                 "function own::loop(%a) opsets(20, own 1):\n  %b = own::loop(%a)\n  return (%b)\n"));
      },
      ThrowsMessage<GraphError>(HasSubstr("own::loop is called 64 calls deep")));
}

TEST(InlineFunctions, WithoutTheOptionCallsStay) {
  ir::Model model = model_with("graph(%x: f32[n]):\n  %y = own::twice(%x)\n  return (%y)\n", kFunctions);
  (void)optimize(model);
  EXPECT_THAT(ir::print(model), HasSubstr("own::twice(%x)"));
}

}  // namespace
}  // namespace exportguard::optimizer
