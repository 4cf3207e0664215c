#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exportguard/common/errors.h"
#include "exportguard/lowering/fused_attention.h"
#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(AttentionLowering, WithoutAMaskItIsMatMulSoftmaxMatMul) {
  const std::string_view graph = R"(
    graph(%q: f32[b,2,s,4], %k: f32[b,2,t,4], %v: f32[b,2,t,4]):
      %y: f32[b,2,s,4] = aten.scaled_dot_product_attention.default(%q, %k, %v)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Mul(%q, %constant.f32.0.5)
  %1 = Transpose(%k) {perm=[0, 1, 3, 2]}
  %2 = MatMul(%0, %1)
  %3 = Softmax(%2) {axis=-1}
  %y = MatMul(%3, %v)
  return (%y)
)");
}

TEST(AttentionLowering, AMaskZeroesTheQueriesThatSeeNoKey) {
  const std::string_view graph = R"(
    graph(%q: f32[b,2,s,4], %k: f32[b,2,t,4], %v: f32[b,2,t,4], %m: bool[b,1,s,t]):
      %y: f32[b,2,s,4] = aten.scaled_dot_product_attention.default(%q, %k, %v, %m)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %0 = Mul(%q, %constant.f32.0.5)
  %1 = Transpose(%k) {perm=[0, 1, 3, 2]}
  %2 = MatMul(%0, %1)
  %3 = Where(%m, %constant.f32.0, %constant.f32.-inf)
  %4 = Add(%2, %3)
  %5 = Softmax(%4) {axis=-1}
  %6 = MatMul(%5, %v)
  %7 = Cast(%m) {to=2}
  %8 = ReduceMax(%7, %"constant.i64[3]") {keepdims=1}
  %9 = Cast(%8) {to=9}
  %y = Where(%9, %6, %constant.f32.0)
  return (%y)
)");
}

TEST(AttentionLowering, HeadsThatGroupsDoNotDivideAreRefused) {
  const std::string_view graph = R"(
    graph(%q: f32[1,3,s,4], %k: f32[1,2,t,4], %v: f32[1,2,t,4]):
      %y: f32[1,3,s,4] = aten.scaled_dot_product_attention.default(%q, %k, %v, None, 0.0, false, None, true)
      return (%y))";
  EXPECT_THAT([&] { lowered(graph); },
              testing::ThrowsMessage<LoweringError>(testing::HasSubstr(
                  "enable_gqa needs a known number of query heads that the number of key heads divides")));
}

// ------------------------------------------------------------------------------------------------ one operator

std::string lowered_as_one(std::string_view text, int opset = 23) {
  ir::Model model;
  model.graph = ir::parse_graph(text);
  lower(model, {.opset = opset, .table = &table_with_fused_attention()});
  ir::verify(model);
  const std::string printed = ir::print(*model.graph, {.types = false});
  return printed.substr(printed.find('\n') + 1);
}

std::string replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string result(text);
  return result.replace(result.find(what), what.size(), by);
}

constexpr std::string_view kSelfAttention = R"(
    graph(%q: f32[b,2,s,4], %k: f32[b,2,s,4], %v: f32[b,2,s,4], %m: bool[b,1,1,s]):
      %y: f32[b,2,s,4] = aten.scaled_dot_product_attention.default(%q, %k, %v, %m)
      return (%y))";

TEST(FusedAttention, IsOneOperatorWithAMaskForEveryQuery) {
  EXPECT_EQ(lowered_as_one(kSelfAttention), R"(  %0 = Shape(%q) {start=2, end=3}
  %1 = Concat(%"constant.i64[1,1]", %0, %"constant.i64[1]") {axis=0}
  %2 = Expand(%m, %1)
  %y = Attention(%q, %k, %v, %2) {scale=0.5}
  return (%y)
)");
}

TEST(FusedAttention, IsWrittenFromOpset23On) {
  EXPECT_THAT(lowered_as_one(kSelfAttention, 22), testing::HasSubstr("Softmax"));
}

TEST(FusedAttention, ADefaultTableDoesNotWriteIt) {
  EXPECT_THAT(lowered(kSelfAttention, 23), testing::HasSubstr("Softmax"));
}

TEST(FusedAttention, AMaskToAddKeepsClearOfTheSmallestNumber) {
  const std::string graph = replaced(kSelfAttention, "%m: bool[b,1,1,s]", "%m: f32[b,1,s,s]");
  EXPECT_EQ(lowered_as_one(graph), R"(  %0 = Equal(%m, %"constant.f32.-3.4028234663852886e+38")
  %1 = Where(%0, %"constant.f32.-3.4028232635611926e+38", %m)
  %y = Attention(%q, %k, %v, %1) {scale=0.5}
  return (%y)
)");
}

TEST(FusedAttention, AMaskToAddToFloat16Rounds) {
  std::string graph = replaced(kSelfAttention, "%m: bool", "%m: f16");
  for (int i = 0; i < 4; ++i) graph = replaced(graph, "f32[b,2", "f16[b,2");
  EXPECT_THAT(lowered_as_one(graph), testing::HasSubstr("Softmax"));
}

TEST(FusedAttention, KeysThatAreACacheAloneMayBeNone) {
  std::string graph = replaced(kSelfAttention, "%k: f32[b,2,s,4]", "%k: f32[b,2,p,4]");
  graph = replaced(replaced(graph, "%v: f32[b,2,s,4]", "%v: f32[b,2,p,4]"), "%m: bool[b,1,1,s]", "%m: bool[b,1,1,p]");
  EXPECT_THAT(lowered_as_one(graph), testing::HasSubstr("Softmax"));
}

TEST(FusedAttention, KeysBehindACacheAreAtLeastAsManyAsQueries) {
  std::string graph = replaced(kSelfAttention, "%k: f32[b,2,s,4]", "%k: f32[b,2,p + s,4]");
  graph = replaced(replaced(graph, "%v: f32[b,2,s,4]", "%v: f32[b,2,p + s,4]"), "%m: bool[b,1,1,s]",
                   "%m: bool[b,1,s,p + s]");
  EXPECT_EQ(lowered_as_one(graph), "  %y = Attention(%q, %k, %v, %m) {scale=0.5}\n  return (%y)\n");
}

TEST(FusedAttention, ASingleHeadOfKeysIsSharedAsTorchBroadcastsIt) {
  std::string graph = replaced(kSelfAttention, "%k: f32[b,2,s,4]", "%k: f32[b,1,s,4]");
  graph = replaced(graph, "%v: f32[b,2,s,4]", "%v: f32[b,1,s,4]");
  EXPECT_THAT(lowered_as_one(graph), testing::HasSubstr("Attention("));
}

TEST(FusedAttention, ASizeOfZeroHasNoKernel) {
  EXPECT_THAT(lowered_as_one(replaced(kSelfAttention, "%v: f32[b,2,s,4]", "%v: f32[b,2,s,0]")),
              testing::HasSubstr("Softmax"));
}

TEST(FusedAttention, FloatsOf64BitsHaveNoKernel) {
  std::string graph(kSelfAttention);
  for (int i = 0; i < 4; ++i) graph = replaced(graph, "f32[b,2", "f64[b,2");
  EXPECT_THAT(lowered_as_one(graph), testing::HasSubstr("Softmax"));
}

TEST(FusedAttention, ATriangleIsCountedFromTheFirstKeyAsInTorch) {
  const std::string_view graph = R"(
    graph(%q: f32[b,4,s,4], %k: f32[b,2,s,4], %v: f32[b,2,s,4]):
      %y: f32[b,4,s,4] = aten.scaled_dot_product_attention.default(%q, %k, %v, None, 0.0, true, None, true)
      return (%y))";
  EXPECT_EQ(lowered_as_one(graph), "  %y = Attention(%q, %k, %v) {scale=0.5, is_causal=1}\n  return (%y)\n");
}

}  // namespace
}  // namespace exportguard::lowering
