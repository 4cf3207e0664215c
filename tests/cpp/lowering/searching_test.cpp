#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/tensor.h>

#include <initializer_list>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

/// The text of a search in a list that is known.
std::string searched(std::initializer_list<float> list) {
  ir::Model model;
  model.graph = ir::parse_graph(R"(
    graph(%v: f32[m]):
      %y: i64[m] = aten.searchsorted.Tensor(%v, %v)
      return (%y))");
  ir::Value& known = model.graph->add_initializer("list", ir::Tensor(at::tensor(list)));
  model.graph->begin()->set_input(0, &known);
  lower(model, {});
  ir::verify(model);
  return ir::print(*model.graph, {.types = false});
}

TEST(SearchingLowering, SearchsortedCountsWhatComesBeforeInAListInOrder) {
  EXPECT_THAT(searched({1, 2, 2, 5}), testing::HasSubstr(R"(  %0 = Unsqueeze(%v, %"constant.i64[1]")
  %1 = Less(%list, %0)
  %2 = IsNaN(%0)
  %3 = Or(%1, %2)
  %4 = Cast(%3) {to=7}
  %y = ReduceSum(%4, %"constant.i64[1]") {keepdims=0}
  return (%y)
)"));
}

TEST(SearchingLowering, SearchsortedHalvesAListThatMayBeInNoOrder) {
  EXPECT_THAT(searched({1, 5, 2}), testing::HasSubstr("= Loop("));
  EXPECT_THAT(lowered(R"(
    graph(%x: f32[n], %v: f32[m]):
      %y: i64[m] = aten.searchsorted.Tensor(%x, %v)
      return (%y))"),
              testing::HasSubstr("= Loop("));
}

}  // namespace
}  // namespace exportguard::lowering
