#include <gtest/gtest.h>

#include "lowering/lowered.h"

namespace exportguard::lowering {
namespace {

TEST(EmbeddingLowering, EmbeddingIsGather) {
  const std::string_view graph = R"(
    graph(%w: f32[7,3], %i: i64[b,s]):
      %y: f32[b,s,3] = aten.embedding.default(%w, %i, 0)
      return (%y))";
  EXPECT_EQ(lowered(graph), R"(  %y = Gather(%w, %i) {axis=0}
  return (%y)
)");
}

}  // namespace
}  // namespace exportguard::lowering
