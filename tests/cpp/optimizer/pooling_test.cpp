#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "optimizer/optimized.h"

namespace exportguard::optimizer {
namespace {

std::string all_replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string result(text);
  for (std::size_t at = result.find(what); at != std::string::npos; at = result.find(what, at + by.size()))
    result.replace(at, what.size(), by);
  return result;
}

constexpr std::string_view kPool = R"(
    graph(%x: f32[b,3,n], %nan: f32[] = {nan}):
      %r: f32[b,3,n] = Relu(%x)
      %found: f32[b,3,m] = MaxPool(%r) {kernel_shape=[2], strides=[2], pads=[0, 0], dilations=[1]}
      %i: bool[b,3,n] = IsNaN(%r)
      %c: u8[b,3,n] = Cast(%i) {to=2}
      %p: u8[b,3,m] = MaxPool(%c) {kernel_shape=[2], strides=[2], pads=[0, 0], dilations=[1]}
      %f: bool[b,3,m] = Cast(%p) {to=9}
      %y: f32[b,3,m] = Where(%f, %nan, %found)
      return (%y))";

TEST(MaxPool, AddsWhatIsPositiveInMinusTheSum) {
  EXPECT_EQ(optimized_nodes(kPool), R"(  %r = Relu(%x)
  %found = MaxPool(%r) {kernel_shape=[2], strides=[2], pads=[0, 0], dilations=[1]}
  %0 = Conv(%r, %minus_sum) {kernel_shape=[2], strides=[2], pads=[0, 0], dilations=[1], group=3}
  %1 = Relu(%0)
  %y = Add(%found, %1)
  return (%y)
)");
}

TEST(MaxPool, KnowsWhatIsNotNegative) {
  const auto is_added = testing::HasSubstr("Conv(");
  for (const std::string_view not_negative :
       {"Abs(%x)", "Exp(%x)", "Clip(%x, %zero)", "Mul(%a, %a)", "Concat(%a, %a) {axis=0}", "Transpose(%t)"}) {
    const std::string graph =
        all_replaced(all_replaced(kPool, "%nan: f32[] = {nan}", "%nan: f32[] = {nan}, %zero: f32[] = {0}"),
                     "%r: f32[b,3,n] = Relu(%x)",
                     "%a: f32[b,3,n] = Sigmoid(%x)\n %t: f32[n,3,b] = Transpose(%a)\n %r: f32[b,3,n] = " +
                         std::string(not_negative));
    EXPECT_THAT(optimized_nodes(graph), is_added) << not_negative;
  }
}

TEST(MaxPool, StaysWhereInfinitiesMayCancelOut) {
  for (const std::string_view maybe_negative : {"Neg(%x)", "Clip(%x)", "Add(%x, %a)", "Concat(%a, %x) {axis=0}"}) {
    const Optimized result =
        optimized(all_replaced(kPool, "%r: f32[b,3,n] = Relu(%x)",
                               "%a: f32[b,3,n] = Sigmoid(%x)\n %r: f32[b,3,n] = " + std::string(maybe_negative)));
    EXPECT_THAT(result.nodes, testing::HasSubstr("Where")) << maybe_negative;
    EXPECT_TRUE(declined(result.report, "max_pool_nan", "the pooled numbers may be negative"));
  }
}

TEST(MaxPool, StaysWithChannelsOfTheRun) {
  const Optimized result = optimized(all_replaced(kPool, "b,3,", "b,k,"));
  EXPECT_TRUE(
      declined(result.report, "max_pool_nan", "the channels are not known, or too many for weights of their own"));
}

TEST(MaxPool, StaysWithAnotherTensorsMaximum) {
  const Optimized result = optimized(all_replaced(kPool, "MaxPool(%r)", "MaxPool(%x)"));
  EXPECT_TRUE(declined(result.report, "max_pool_nan", "the other numbers are no pool of the same tensor"));
}

}  // namespace
}  // namespace exportguard::optimizer
