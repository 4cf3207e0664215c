#include "exportguard/common/sizes.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace exportguard {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

TEST(Sizes, AreMultipliedAsFarAsANumberGoes) {
  using Sizes = std::vector<std::int64_t>;
  EXPECT_EQ(element_count(Sizes{}), 1);
  EXPECT_EQ(element_count(Sizes{2, 3, 4}), 24);
  EXPECT_EQ(element_count(Sizes{kHuge}), kHuge);
  EXPECT_EQ(element_count(Sizes{2, kHuge}), std::nullopt);
  EXPECT_EQ(element_count(Sizes{std::int64_t{1} << 32, std::int64_t{1} << 32}), std::nullopt);
}

TEST(Sizes, HaveNoElementsIfOneOfThemIsZeroBehindHoweverLargeOnes) {
  EXPECT_EQ(element_count(std::vector<std::int64_t>{2, kHuge, 0}), 0);
  EXPECT_EQ(element_count(std::vector<std::int64_t>{0, kHuge, 2}), 0);
}

}  // namespace
}  // namespace exportguard
