#include "exportguard/quantization/blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "exportguard/common/errors.h"
#include "quantization/block.h"

namespace exportguard::quantization {
namespace {

using testing::ElementsAre;

struct Result {
  std::vector<std::uint8_t> values;
  std::vector<float> scales;
  std::vector<std::uint8_t> zero_points;
  bool is_finite;
};

/// Of numbers that lie row by row.
Result quantized(const std::vector<float>& numbers, std::int64_t rows, std::int64_t columns, BlockOptions options) {
  const Matrix matrix{numbers.data(), DType::kFloat32, rows, columns, columns, 1};
  const BlockSizes size = sizes(matrix, options);
  Result result{std::vector<std::uint8_t>(size.values, 0xAA), std::vector<float>(size.scales),
                std::vector<std::uint8_t>(size.zero_points, 0xAA), false};
  result.is_finite = quantize(matrix, options, {result.values, result.scales.data(), result.zero_points});
  return result;
}

TEST(QuantizeBlocks, TheNumberOfLargestMagnitudeIsTheEndWithOneStepMore) {
  const Result result = quantized({-8, 4, 0, 7}, 4, 1, {.block = 16});
  EXPECT_THAT(result.scales, ElementsAre(1.0F));
  EXPECT_THAT(result.values, ElementsAre(0xC0, 0xF8, 0, 0, 0, 0, 0, 0));
}

TEST(QuantizeBlocks, AValueThatSharesAByteWithTheLastOneStandsForZero) {
  const Result result = quantized({16, 8, -8}, 3, 1, {.block = 16});
  EXPECT_THAT(result.scales, ElementsAre(-2.0F));
  EXPECT_THAT(result.values, ElementsAre(0x40, 0x8C, 0, 0, 0, 0, 0, 0));
}

TEST(QuantizeBlocks, AZeroPointIsWhereZeroLies) {
  const Result result = quantized({-5, 10, 0}, 3, 1, {.block = 16, .is_symmetric = false});
  EXPECT_THAT(result.scales, ElementsAre(1.0F));
  EXPECT_THAT(result.zero_points, ElementsAre(0x85));
  EXPECT_EQ(result.values[0], 0xF0);
}

TEST(QuantizeBlocks, ByRowsTheValuesOfARowLieSideBySideAndAreSigned) {
  const Result result = quantized({-8, 7, 1, -8, 4, 0}, 2, 3, {.block = 16, .layout = Layout::kByRows});
  EXPECT_THAT(result.values, ElementsAre(0x88, 0x88, 0x0B));
}

TEST(QuantizeBlocks, HalvesGoAwayFromZero) {
  const Result result = quantized({-8, 2.5, 0.5, -0.5}, 4, 1, {.block = 16});
  EXPECT_THAT(std::vector(result.values.begin(), result.values.begin() + 2), ElementsAre(0xB0, 0x89));
}

TEST(QuantizeBlocks, ABlockWhoseScaleHasNoReciprocalIsZero) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const Result result = quantized({8 * tiny, -tiny}, 2, 1, {.block = 16});
  EXPECT_TRUE(result.is_finite);
  EXPECT_EQ(result.values[0], 0x88);
}

TEST(QuantizeBlocks, NumbersThatAreNotFiniteAreTold) {
  for (const float number : {std::nanf(""), INFINITY, -INFINITY}) {
    std::vector<float> numbers(100, 1.0F);
    numbers[77] = number;
    EXPECT_FALSE(quantized(numbers, 50, 2, {}).is_finite) << number;
  }
}

TEST(QuantizeBlocks, WhatNoOperatorHasIsRefused) {
  EXPECT_THROW(quantized({1}, 1, 1, {.bits = 3}), InvalidArgument);
  EXPECT_THROW(quantized({1}, 1, 1, {.block = 24}), InvalidArgument);
  EXPECT_THROW(sizes({nullptr, DType::kFloat64, 1, 1, 1, 1}, {}), InvalidArgument);
  const Matrix matrix{nullptr, DType::kFloat32, 1, 1, 1, 1};
  EXPECT_THROW(quantize(matrix, {}, {{}, nullptr, {}}), InvalidArgument);
}

TEST(QuantizeBlocks, EveryInstructionSetGivesTheSameBits) {
  std::mt19937 draw(0);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(4096);
  for (float& number : numbers) number = normal(draw);
  for (const unsigned kind : {0U, 1U, 2U, 3U, 4U, 5U}) {
    const BlockRule rule{.bits = 4,
                         .is_symmetric = (kind & 1U) != 0,
                         .is_standard = (kind & 2U) != 0,
                         .is_half = false,
                         .is_packed = (kind & 4U) != 0};
    std::vector<std::uint8_t> expected(numbers.size()), got(numbers.size());
    const Scale scale = find_routines(Instructions::kBaseline).quantize(rule, numbers.data(), 4096, expected.data());
    for (const Instructions one : {Instructions::kAvx2, Instructions::kAvx512}) {
      const Routines wide = find_routines(one);
      if (wide.quantize == nullptr) continue;
      EXPECT_EQ(wide.quantize(rule, numbers.data(), 4096, got.data()).scale, scale.scale);
      EXPECT_EQ(got, expected);
    }
  }
}

}  // namespace
}  // namespace exportguard::quantization
