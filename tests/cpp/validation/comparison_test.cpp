#include "exportguard/validation/comparison.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "exportguard/common/errors.h"
#include "validation/elements.h"
#include "validation/lanes.h"

namespace exportguard::validation {
namespace {

using ir::Tensor;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Comparison compared(const at::Tensor& expected, const at::Tensor& got, Tolerance tolerance = {}) {
  return compare(Tensor(expected), Tensor(got), tolerance);
}

at::Tensor reals(std::vector<double> values, at::ScalarType type = at::kFloat) {
  return at::tensor(values, at::kDouble).to(type);
}

/// The definition, with one pass for each figure and everything in float64.
struct Reference {
  Reference(const at::Tensor& expected, const at::Tensor& got, Tolerance tolerance)
      : want(expected.to(at::kDouble).flatten()), have(got.to(at::kDouble).flatten()) {
    const at::Tensor nan_mismatch = want.isnan() != have.isnan();
    nan_mismatches = nan_mismatch.sum().item<std::int64_t>();
    const at::Tensor numbers = want.isnan().logical_or(have.isnan()).logical_not();
    const at::Tensor infinite = want.isinf().logical_or(have.isinf()).logical_and(numbers);
    infinity_mismatches = infinite.logical_and(want != have).sum().item<std::int64_t>();
    const at::Tensor finite = want.isfinite().logical_and(have.isfinite());
    want = want.masked_select(finite);
    have = have.masked_select(finite);
    difference = (want - have).abs();
    relative = difference / want.abs().clamp_min(1e-12);
    over = (difference > tolerance.absolute + tolerance.relative * want.abs()).sum().item<std::int64_t>();
  }

  at::Tensor want, have, difference, relative;
  std::int64_t nan_mismatches, infinity_mismatches, over;
};

void expect_near(double got, double expected, double relative) {
  EXPECT_NEAR(got, expected, relative * std::abs(expected) + 1e-300) << "relative bound " << relative;
}

void expect_as_defined(const at::Tensor& expected, const at::Tensor& got, Tolerance tolerance) {
  const Comparison result = compared(expected, got, tolerance);
  const Reference reference(expected, got, tolerance);
  EXPECT_EQ(result.count, expected.numel());
  EXPECT_EQ(result.finite, reference.want.numel());
  EXPECT_EQ(result.nan_mismatches, reference.nan_mismatches);
  EXPECT_EQ(result.infinity_mismatches, reference.infinity_mismatches);
  EXPECT_EQ(result.over, reference.over);
  EXPECT_EQ(std::accumulate(result.ulps.begin(), result.ulps.end(), std::int64_t{0}), result.finite);
  EXPECT_EQ(result.max_absolute_at.has_value(), result.finite > 0);
  if (result.finite == 0) return;

  expect_near(result.max_absolute, reference.difference.max().item<double>(), 1e-6);
  expect_near(result.max_relative, reference.relative.max().item<double>(), 1e-6);
  expect_near(result.mean_absolute, reference.difference.mean().item<double>(), 1e-5);
  expect_near(result.mean_relative, reference.relative.mean().item<double>(), 1e-5);
  const double noise = reference.difference.square().sum().item<double>();
  const double signal = reference.want.square().sum().item<double>();
  if (noise > 0 && signal > 0) {
    EXPECT_NEAR(result.signal_to_noise, 10 * std::log10(signal / noise), 1e-3);
  }
  const double norms = reference.want.norm().item<double>() * reference.have.norm().item<double>();
  if (norms > 0) {
    EXPECT_NEAR(result.cosine, (reference.want * reference.have).sum().item<double>() / norms, 1e-5);
  }
}

TEST(Compare, EqualTensorsAgreeInEveryFigure) {
  const at::Tensor values = at::randn({3, 1000});
  const Comparison result = compared(values, values.clone());
  EXPECT_TRUE(result.agrees());
  EXPECT_EQ(result.max_absolute, 0.0);
  EXPECT_EQ(result.max_absolute_at, 0);
  EXPECT_EQ(result.ulps[0], 3000);
  EXPECT_EQ(result.ulps_at_most(), 0U);
  EXPECT_EQ(result.signal_to_noise, kInf);
  EXPECT_NEAR(result.cosine, 1.0, 1e-6);
}

TEST(Compare, NamesTheFirstPlaceOfTheLargestDifference) {
  at::Tensor expected = at::ones({100, 100});
  at::Tensor got = expected.clone();
  got[41][7] = 3.0;
  got[90][1] = 3.0;
  const Comparison result = compared(expected, got, {.absolute = 0.5});
  EXPECT_EQ(result.max_absolute, 2.0);
  EXPECT_EQ(result.max_absolute_at, 4107);
  EXPECT_EQ(result.max_relative_at, 4107);
  EXPECT_EQ(result.over, 2);
}

TEST(Compare, NotANumberIsWhereItIsExpected) {
  EXPECT_TRUE(compared(reals({1, kNan, kInf}), reals({1, kNan, kInf})).agrees());
  EXPECT_EQ(compared(reals({1, kNan, 2}), reals({kNan, 1, 2})).nan_mismatches, 2);
  EXPECT_EQ(compared(reals({kInf, 1, kInf}), reals({-kInf, kInf, kNan})).infinity_mismatches, 2);
  EXPECT_EQ(compared(reals({kInf, 1, kInf}), reals({-kInf, kInf, kNan})).nan_mismatches, 1);
}

TEST(Compare, AnEmptyTensorAgrees) {
  const Comparison result = compared(at::empty({0, 3}), at::empty({0, 3}));
  EXPECT_TRUE(result.agrees());
  EXPECT_EQ(result.max_absolute_at, std::nullopt);
  EXPECT_EQ(result.ulps_at_most(), 0U);
}

TEST(Compare, CountsUnitsInTheLastPlaceOfTheCoarserType) {
  struct Case {
    at::ScalarType expected, got;
    double a, b;
    int bucket;
  };
  const double f32 = std::ldexp(1, -23), f16 = std::ldexp(1, -10), bf16 = std::ldexp(1, -7);
  const std::vector<Case> cases = {
      {at::kFloat, at::kFloat, 1, 1 + f32, 1},
      {at::kFloat, at::kFloat, 1, 1 + 5 * f32, 3},
      {at::kHalf, at::kHalf, 1, 1 + f16, 1},
      {at::kHalf, at::kFloat, 1, 1 + 2 * f16, 2},
      {at::kBFloat16, at::kBFloat16, 1, 1 + 3 * bf16, 2},
      {at::kHalf, at::kHalf, 0, std::ldexp(1, -24), 1},                      // the smallest subnormal number
      {at::kHalf, at::kHalf, -std::ldexp(1, -24), std::ldexp(1, -24), 2},    // across zero
      {at::kHalf, at::kHalf, std::ldexp(1023, -24), std::ldexp(1, -14), 1},  // into the normal numbers
      {at::kFloat8_e4m3fn, at::kFloat8_e4m3fn, 1, 1.125, 1},
      {at::kFloat8_e5m2, at::kFloat8_e5m2, 0, std::ldexp(1, -16), 1},
      {at::kDouble, at::kDouble, 1, 1 + std::ldexp(1, -52), 1},
      {at::kFloat, at::kFloat, -0.0, 0.0, 0},
      {at::kFloat, at::kFloat, -std::numeric_limits<float>::max(), std::numeric_limits<float>::max(), 32},
      {at::kLong, at::kLong, -3, 4, 3},
  };
  for (const Case& one : cases) {
    for (const std::int64_t count : {1, 16, 100}) {  // one by one, in lanes, and both
      const Comparison result = compared(at::full({count}, one.a, at::kDouble).to(one.expected),
                                         at::full({count}, one.b, at::kDouble).to(one.got), {.absolute = 1e300});
      EXPECT_EQ(result.ulps[static_cast<std::size_t>(one.bucket)], count)
          << at::toString(one.expected) << " " << one.a << " against " << one.b << ", " << count << " of them";
    }
  }
}

TEST(Compare, WholeNumbersAreExactWhereFloat64IsNot) {
  const std::int64_t large = std::numeric_limits<std::int64_t>::max();
  const at::Tensor expected = at::tensor({large, large - 1}, at::kLong);
  const Comparison result = compared(expected, at::tensor({large - 1, large - 1}, at::kLong));
  EXPECT_EQ(result.over, 1);
  EXPECT_EQ(result.max_absolute, 1.0);
  const at::Tensor wide = at::tensor({std::int64_t{-1}, std::int64_t{-2}}, at::kLong).view(at::kUInt64);
  const at::Tensor swapped = at::tensor({std::int64_t{-2}, std::int64_t{-1}}, at::kLong).view(at::kUInt64);
  EXPECT_EQ(compared(wide, swapped).max_absolute, 1.0);
  EXPECT_EQ(compared(wide, wide).over, 0);
  const at::Tensor flags = at::tensor({1, 0, 1}, at::kInt).to(at::kBool);
  EXPECT_EQ(compared(flags, flags.logical_not()).over, 3);
}

TEST(Compare, ComplexNumbersDifferByTheirDistance) {
  const at::Tensor expected = at::complex(reals({3, 0}), reals({4, 0}));
  const at::Tensor got = at::complex(reals({3, 3}), reals({4, 4}));
  const Comparison result = compared(expected, got, {.relative = 1e-3});
  EXPECT_EQ(result.max_absolute, 5.0);
  EXPECT_EQ(result.max_absolute_at, 1);
  EXPECT_EQ(result.over, 1);
  EXPECT_TRUE(compared(expected, expected.conj().conj()).agrees());
  EXPECT_EQ(compared(expected, expected.conj()).max_absolute, 8.0);
}

TEST(Compare, ZeroVectorsHaveNoAngle) {
  const at::Tensor zeros = at::zeros({20}), ones = at::ones({20});
  EXPECT_EQ(compared(zeros, zeros).cosine, 1.0);
  EXPECT_EQ(compared(zeros, ones).cosine, 0.0);
  EXPECT_EQ(compared(ones, -ones).cosine, -1.0);
}

TEST(Compare, ShapesMustBeTheSame) {
  try {
    compared(at::zeros({2, 3}), at::zeros({3, 2}));
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "cannot compare tensors of shapes [2, 3] and [3, 2]");
  }
}

TEST(Compare, StringsHaveNoDifferences) {
  const Tensor text = Tensor::strings({"a"});
  EXPECT_THROW(compare(text, text, {}), Error);
}

TEST(Compare, ManyTensorsAtOnceAreThoseOneByOne) {
  std::vector<Tensor> tensors;
  for (const std::int64_t size : {0, 1, 17, 4096, 4097, 3'000'000}) {
    tensors.emplace_back(at::randn({size}));
    tensors.emplace_back(tensors.back().aten() + 1e-6 * at::randn({size}));
  }
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < tensors.size(); i += 2) pairs.push_back({&tensors[i], &tensors[i + 1], {}});
  const std::vector<Comparison> together = compare(pairs);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const Comparison alone = compare(*pairs[i].expected, *pairs[i].got, {});
    EXPECT_EQ(together[i].max_absolute_at, alone.max_absolute_at);
    EXPECT_EQ(together[i].mean_absolute, alone.mean_absolute);
    EXPECT_EQ(together[i].ulps, alone.ulps);
  }
}

TEST(Compare, ToleranceIsThatOfTheDtype) {
  EXPECT_EQ(tolerance_for(DType::kInt64), Tolerance{});
  EXPECT_EQ(tolerance_for(DType::kBool), Tolerance{});
  EXPECT_LT(tolerance_for(DType::kFloat64).relative, tolerance_for(DType::kFloat32).relative);
  EXPECT_LT(tolerance_for(DType::kFloat32).relative, tolerance_for(DType::kFloat16).relative);
  EXPECT_LT(tolerance_for(DType::kFloat16).relative, tolerance_for(DType::kBFloat16).relative);
}

// ---------------------------------------------------------------------------------------------------- instructions
template <typename T>
void expect_every_instruction_set_adds_the_same() {
  at::manual_seed(3);
  for (const double scale : {1.0, 1e-3, 1e10}) {
    const at::Tensor expected = (at::randn({kBlock}, at::kDouble) * scale).to(c10::CppTypeToScalarType<T>::value);
    const at::Tensor got = expected * (1 + 1e-6 * at::randn({kBlock}, expected.scalar_type()));
    const Block<T> block{expected.const_data_ptr<T>(), got.const_data_ptr<T>(), kBlock, 7};
    Figures baseline;
    Histogram counted{};
    ASSERT_TRUE(find_add_block<T>(Instructions::kBaseline)(baseline, counted, block, {1e-6, 1e-6}, {}));
    for (const Instructions instructions : {Instructions::kAvx2, Instructions::kAvx512}) {
      const AddBlock<T> add = find_add_block<T>(instructions);
      if (add == nullptr) continue;  // not on this machine
      Figures figures;
      Histogram ulps{};
      ASSERT_TRUE(add(figures, ulps, block, {1e-6, 1e-6}, {}));
      EXPECT_EQ(ulps, counted);
      EXPECT_EQ(figures.max_absolute, baseline.max_absolute);
      EXPECT_EQ(figures.max_absolute_at, baseline.max_absolute_at);
      EXPECT_NEAR(figures.sum_absolute, baseline.sum_absolute, 1e-5 * baseline.sum_absolute);
      EXPECT_NEAR(figures.sum_noise, baseline.sum_noise, 1e-5 * baseline.sum_noise);
      EXPECT_NEAR(figures.sum_product, baseline.sum_product, 1e-5 * baseline.sum_product);
    }
  }
}

TEST(AddBlock, IsTheSameWithEveryInstructionSet) {
  expect_every_instruction_set_adds_the_same<float>();
  expect_every_instruction_set_adds_the_same<double>();
}

TEST(AddBlock, LeavesUnusualValuesToTheCarefulWay) {
  for (const Instructions instructions : {Instructions::kBaseline, Instructions::kAvx2, Instructions::kAvx512}) {
    const AddBlock<float> add = find_add_block<float>(instructions);
    if (add == nullptr) continue;  // not on this machine
    for (const double unusual : {kNan, kInf, -kInf, 1e20, -1e20}) {
      const at::Tensor usual = at::ones({kLanes});
      const at::Tensor other = usual.clone();
      other[5] = unusual;
      for (const auto& [expected, got] : {std::pair(usual, other), std::pair(other, usual)}) {
        Figures figures;
        Histogram ulps{};
        const Block<float> block{expected.const_data_ptr<float>(), got.const_data_ptr<float>(), kLanes, 0};
        EXPECT_FALSE(add(figures, ulps, block, {}, {})) << unusual;
        EXPECT_EQ(figures.finite, 0);
        EXPECT_EQ(ulps, Histogram{});
      }
    }
  }
}

struct Packed {
  at::ScalarType type;
  Packing packing;
};

/// Narrow values with equal ones, zeros of both signs, subnormal numbers, and at times one that is unusual.
at::Tensor narrow_values(std::mt19937& random, at::ScalarType type) {
  at::Tensor values = at::randn({kBlock}, at::kDouble);
  const at::Tensor kinds = at::rand({kBlock});
  values = values.masked_fill(kinds < 0.05, 0.0).masked_fill(kinds > 0.95, -0.0);
  values = at::where(kinds.ge(0.4).logical_and(kinds.lt(0.5)), values * 1e-6, values);
  if (random() % 5 == 0) values[std::int64_t(random() % kBlock)] = std::array{kNan, kInf, -kInf}[random() % 3];
  return values.to(type);
}

void expect_the_same_to_the_last_bit(const Figures& got, const Figures& expected) {
  EXPECT_EQ(std::memcmp(&got, &expected, sizeof(Figures)), 0)
      << "sums " << got.sum_absolute << " and " << expected.sum_absolute << ", largest " << got.max_relative << " at "
      << got.max_relative_at << " and " << expected.max_relative << " at " << expected.max_relative_at;
}

TEST(AddPacked, IsTheSameAsOfWidenedValuesToTheLastBit) {
  const AddPacked add = find_add_packed();
  const AddBlock<float> add_widened = find_add_block<float>(Instructions::kAvx512);
  ASSERT_EQ(add == nullptr, add_widened == nullptr);
  if (add == nullptr) return;  // not on this machine: values are widened first there
  at::manual_seed(9);
  std::mt19937 random(9);
  const std::vector<Packed> forms = {
      {at::kFloat, Packing::kFloat}, {at::kHalf, Packing::kHalf}, {at::kBFloat16, Packing::kBFloat16}};
  for (const Packed& one : forms) {
    for (const Packed& other : forms) {
      SCOPED_TRACE(testing::Message() << at::toString(one.type) << " and " << at::toString(other.type));
      const UlpScale scale = ulp_scale(one.type, other.type, Arithmetic::kFloat);
      Figures packed_figures, figures;
      Histogram packed_ulps{}, ulps{};
      for (std::int64_t round = 0; round < 40; ++round) {  // the largest so far is that of earlier blocks
        const at::Tensor expected = narrow_values(random, one.type);
        const at::Tensor near = expected.to(at::kFloat) * (1 + 0.01 * at::randint(-1, 2, {kBlock}).to(at::kFloat));
        const at::Tensor got = random() % 4 == 0 ? narrow_values(random, other.type) : near.to(other.type);
        const std::size_t count = kLanes * (random() % (kBlock / kLanes) + 1);
        const std::int64_t position = round * static_cast<std::int64_t>(kBlock);
        const at::Tensor wide_expected = expected.to(at::kFloat);
        const at::Tensor wide_got = got.to(at::kFloat);
        const bool is_added =
            add(packed_figures, packed_ulps,
                {expected.const_data_ptr(), one.packing, got.const_data_ptr(), other.packing, count, position},
                {1e-3, 1e-2}, scale);
        ASSERT_EQ(is_added, add_widened(figures, ulps,
                                        {wide_expected.const_data_ptr<float>(), wide_got.const_data_ptr<float>(), count,
                                         position},
                                        {1e-3, 1e-2}, scale));
        expect_the_same_to_the_last_bit(packed_figures, figures);
        ASSERT_EQ(packed_ulps, ulps);
        if (HasFailure()) return;
      }
      EXPECT_GT(figures.over, 0);
    }
  }
}

/// The largest relative difference is that of plain division, though lanes estimate it.
TEST(AddPacked, HasTheFirstOfTheLargestQuotients) {
  if (find_add_packed() == nullptr) return;  // not on this machine
  at::manual_seed(10);
  for (int round = 0; round < 50; ++round) {
    const at::Tensor expected = at::randn({3 * kBlock}).to(at::kBFloat16);
    const at::Tensor got = (expected.to(at::kFloat) * 1.004).to(at::kBFloat16);
    const at::Tensor want = expected.to(at::kFloat);
    const at::Tensor quotients = (got.to(at::kFloat) - want).abs() / want.abs();
    const Comparison result = compared(expected, got);
    EXPECT_EQ(result.max_relative, static_cast<double>(quotients.max().item<float>()));
    EXPECT_EQ(result.max_relative_at, quotients.eq(quotients.max()).nonzero()[0].item<std::int64_t>());
  }
}

// ---------------------------------------------------------------------------------------------------- random tensors
at::Tensor random_values(std::mt19937& random, const std::vector<std::int64_t>& shape, at::ScalarType type) {
  const double exponent = std::uniform_real_distribution<>(-20, 20)(random);
  const bool is_narrow = type != at::kFloat && type != at::kDouble;
  at::Tensor values = at::randn(shape, at::kDouble) * (is_narrow ? 1.0 : std::pow(10.0, exponent));
  if (random() % 3 == 0) values = values * at::rand(shape, at::kDouble).mul(is_narrow ? 2 : 60).sub(1).exp();
  if (random() % 3 == 0 && values.numel() > 0) {
    const at::Tensor holes = at::rand(shape);
    values = values.masked_fill(holes < 0.02, kNan).masked_fill(holes > 0.98, kInf).masked_fill(holes > 0.99, -kInf);
  }
  return values.to(type);
}

at::Tensor strided(std::mt19937& random, const at::Tensor& values) {
  if (values.dim() < 2) return values.unsqueeze(-1).expand({-1, 2}).contiguous().select(1, 0).view(values.sizes());
  switch (random() % 3) {
    case 0:
      return values.transpose(0, 1).contiguous().transpose(0, 1);
    case 1:
      return at::stack({values, values}, 1).select(1, 1);
    default:
      return values;
  }
}

TEST(Compare, IsAsDefinedOnRandomTensors) {
  std::mt19937 random(20);
  at::manual_seed(20);
  const std::vector<at::ScalarType> types = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
  for (int round = 0; round < 300; ++round) {
    std::vector<std::int64_t> shape;
    for (std::size_t axis = 0; axis < random() % 4 + 1; ++axis) shape.push_back(std::int64_t(random() % 40));
    if (round % 10 == 0) shape = {std::int64_t(random() % 20'000)};
    const at::ScalarType type = types[random() % types.size()];
    const at::ScalarType other = random() % 4 == 0 ? types[random() % types.size()] : type;
    const at::Tensor expected = random_values(random, shape, type);
    at::Tensor got = expected.to(at::kDouble) * (1 + 1e-4 * at::randn(shape, at::kDouble));
    if (random() % 4 == 0) got = random_values(random, shape, other).to(at::kDouble);
    SCOPED_TRACE(testing::Message() << "round " << round << ", " << at::toString(type) << " and " << at::toString(other)
                                    << ", shape " << at::IntArrayRef(shape));
    expect_as_defined(strided(random, expected), strided(random, got.to(other)), {.absolute = 1e-5, .relative = 1e-4});
    if (HasFailure()) return;
  }
}

// As a block of the device does: each of 256 threads takes every 256th pair of a tile.
Figures of_threads(const std::vector<float>& expected, const std::vector<float>& got, const Bounds& bounds,
                   std::int64_t begin) {
  constexpr std::size_t kThreads = 256;
  Figures all;
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    Figures figures;
    FloatFigures few;
    for (std::size_t i = thread; i < expected.size(); i += kThreads) {
      if (is_for_float(expected[i], got[i])) {
        add_float_pair(few, expected[i], got[i], bounds, static_cast<std::int32_t>(i));
      } else {
        add_pair(figures, expected[i], got[i], bounds, begin + static_cast<std::int64_t>(i));
      }
    }
    take_over(figures, few, begin);
    merge(all, figures);
  }
  return all;
}

TEST(FloatFigures, AreThoseOfFloat64AsFarAsFloat32Tells) {
  std::mt19937 random(7);
  const std::vector<float> unusual = {0.0F,
                                      -0.0F,
                                      1e-20F,
                                      1e-45F,
                                      3e38F,
                                      1e15F,
                                      std::numeric_limits<float>::infinity(),
                                      -std::numeric_limits<float>::infinity(),
                                      std::numeric_limits<float>::quiet_NaN()};
  for (int round = 0; round < 40; ++round) {
    std::normal_distribution<float> normal(0.0F, std::pow(10.0F, static_cast<float>(random() % 9) - 4.0F));
    const std::size_t count = random() % 4 == 0 ? random() % 5 : random() % 65536;
    std::vector<float> expected, got;
    for (std::size_t i = 0; i < count; ++i) {
      const bool is_unusual = round % 2 == 0 && random() % 50 == 0;
      expected.push_back(is_unusual ? unusual[random() % unusual.size()] : normal(random));
      got.push_back(random() % 60 == 0 ? unusual[random() % unusual.size()]
                                       : expected.back() * (1 + 1e-3F * static_cast<float>(random() % 3)));
    }
    const Bounds bounds{1e-3, 1e-3};
    constexpr std::int64_t kBegin = std::int64_t{1} << 33;
    Figures wide;
    for (std::size_t i = 0; i < count; ++i) {
      add_pair(wide, expected[i], got[i], bounds, kBegin + static_cast<std::int64_t>(i));
    }
    const Figures narrow = of_threads(expected, got, bounds, kBegin);

    SCOPED_TRACE(testing::Message() << "round " << round << ", " << count << " pairs");
    EXPECT_EQ(narrow.finite, wide.finite);
    EXPECT_EQ(narrow.nan_mismatches, wide.nan_mismatches);
    EXPECT_EQ(narrow.infinity_mismatches, wide.infinity_mismatches);
    EXPECT_NEAR(narrow.max_absolute, wide.max_absolute, 1e-6 * std::fabs(wide.max_absolute));
    EXPECT_NEAR(narrow.max_relative, wide.max_relative, 1e-6 * std::fabs(wide.max_relative));
    for (const auto sum : {&Figures::sum_absolute, &Figures::sum_relative, &Figures::sum_noise, &Figures::sum_expected,
                           &Figures::sum_got}) {
      EXPECT_NEAR(narrow.*sum, wide.*sum, 1e-5 * std::fabs(wide.*sum));
    }
    EXPECT_NEAR(narrow.sum_product, wide.sum_product, 1e-5 * (wide.sum_expected + wide.sum_got));
    if (wide.finite == 0) continue;
    const auto at = static_cast<std::size_t>(narrow.max_absolute_at - kBegin);
    EXPECT_NEAR(std::fabs(static_cast<double>(got[at]) - static_cast<double>(expected[at])), wide.max_absolute,
                1e-6 * wide.max_absolute);
  }
}

}  // namespace
}  // namespace exportguard::validation
