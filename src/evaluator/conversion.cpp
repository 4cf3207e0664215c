#include "evaluator/conversion.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "exportguard/common/torch_dtypes.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;

// The positive numbers of f4e2m1 by their bits.
constexpr std::array<float, 8> kFloat4{0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
constexpr int kFloat4Sign = 8;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Tensor from_float4(const Tensor& bits) {
  const Tensor table = at::tensor(at::ArrayRef<float>(kFloat4), at::TensorOptions(at::kFloat)).to(bits.device());
  const Tensor wide = bits.to(at::kLong);
  const Tensor magnitude = table.index({wide.bitwise_and(kFloat4Sign - 1)});
  return at::where(wide.ge(kFloat4Sign), magnitude.neg(), magnitude);
}

// Halfway between two neighbours the one with an even last bit is taken: above it for odd bits, from it on for even
// ones.
Tensor to_float4(const Tensor& numbers) {
  const Tensor magnitude = numbers.abs();
  Tensor bits = at::empty_like(magnitude, magnitude.options().dtype(at::kByte)).zero_();
  for (std::size_t i = 1; i < kFloat4.size(); ++i) {
    const double middle = (kFloat4[i - 1] + kFloat4[i]) / 2.0;
    const Tensor reaches = i % 2 == 0 ? magnitude.ge(middle) : magnitude.gt(middle);
    bits = bits.add(reaches.to(at::kByte));
  }
  const Tensor is_negative = numbers.signbit();
  return bits.add(is_negative.to(at::kByte).mul(kFloat4Sign));
}

double largest(DType dtype) {
  switch (dtype) {
    case DType::kFloat8E4M3FN:
      return 448;
    case DType::kFloat8E4M3FNUZ:
      return 240;
    default:
      return 57344;
  }
}

// The byte is the exponent of two, less 127; 255 is NaN.
Tensor to_exponents(const Tensor& numbers, const ConversionOptions& options) {
  const Tensor dense = numbers.to(at::kCPU, at::kFloat).contiguous();
  const Tensor bytes = at::empty_like(dense, dense.options().dtype(at::kByte));
  const auto* from = dense.const_data_ptr<float>();
  auto* to = bytes.mutable_data_ptr<std::uint8_t>();

  for (std::int64_t i = 0; i < dense.numel(); ++i) {
    int exponent = 0;
    const double fraction = std::frexp(std::abs(static_cast<double>(from[i])), &exponent);  // in [0.5, 1)
    if (std::isnan(from[i]) || (std::isinf(from[i]) && !options.saturate)) {
      to[i] = 255;
      continue;
    }
    const bool is_above = options.round_mode == "up"        ? fraction > 0.5
                          : options.round_mode == "nearest" ? fraction >= 0.75
                                                            : false;
    const int biased = std::isinf(from[i]) ? 255 : exponent - 1 + 127 + (is_above ? 1 : 0);
    const int most = options.saturate ? 254 : 255;
    to[i] = static_cast<std::uint8_t>(from[i] == 0 ? 0 : std::clamp(biased, 0, most));
  }

  return bytes.view(at::ScalarType::Float8_e8m0fnu).to(numbers.device());
}

Tensor to_float8(const Tensor& numbers, DType dtype, bool saturate) {
  const Tensor wide = numbers.to(at::kFloat);
  const double limit = largest(dtype);
  if (saturate) return wide.clamp(-limit, limit).to(to_scalar_type(dtype));
  // torch 2.13 cuts f8e4m3fn off; halfway to the next number, which is none, still rounds to the largest.
  const bool is_cut_off = dtype == DType::kFloat8E4M3FN;
  const Tensor known = is_cut_off ? wide.masked_fill(wide.abs().gt(limit + 16), kNaN) : wide;
  return known.to(to_scalar_type(dtype));
}

// The low bits of a number cut off towards zero, with the sign that they make.
Tensor wrapped(const Tensor& numbers, DType to) {
  const int bits = bit_width(to);
  const Tensor low = numbers.to(at::kLong).bitwise_and((1 << bits) - 1);
  if (is_unsigned(to)) return low.to(at::kByte);
  const int half = 1 << (bits - 1);
  return at::where(low.ge(half), low.sub(2 * half), low).to(at::kChar);
}

}  // namespace

Tensor readable(const Datum& datum) {
  if (datum.dtype == DType::kFloat4E2M1) return from_float4(datum.tensor);
  return c10::isFloat8Type(datum.tensor.scalar_type()) ? datum.tensor.to(at::kFloat) : datum.tensor;
}

Datum converted(const Datum& datum, DType to, const ConversionOptions& options) {
  if (datum.dtype == to) return datum;

  const Tensor numbers = readable(datum);
  switch (to) {
    case DType::kFloat8E8M0:
      return Datum::of(to_exponents(numbers, options), to);
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2:
    case DType::kFloat8E5M2FNUZ:
      return Datum::of(to_float8(numbers, to, options.saturate), to);
    case DType::kFloat4E2M1:
      return Datum::of(to_float4(numbers.to(at::kFloat)), to);
    case DType::kInt4:
    case DType::kUint4:
    case DType::kInt2:
    case DType::kUint2:
      return Datum::of(wrapped(numbers, to), to);
    default:
      return Datum::of(numbers.to(storage_of(to)), to);
  }
}

}  // namespace exportguard::evaluator
