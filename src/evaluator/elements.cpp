#include "evaluator/elements.h"

#include <ATen/ops/broadcast_tensors.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <limits>

namespace exportguard::evaluator {
namespace {

constexpr std::int64_t kHighestBit = std::numeric_limits<std::int64_t>::min();

c10::ScalarType bits_of(c10::ScalarType type) {
  switch (type) {
    case at::kUInt16:
      return at::kShort;
    case at::kUInt32:
      return at::kInt;
    case at::kUInt64:
      return at::kLong;
    default:
      return c10::isFloat8Type(type) ? at::kChar : type;
  }
}

}  // namespace

at::Tensor as_bits(const at::Tensor& tensor) {
  const c10::ScalarType bits = bits_of(tensor.scalar_type());
  return bits == tensor.scalar_type() ? tensor : tensor.view(bits);
}

at::Tensor widened(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kUInt16:
    case at::kUInt32:
      return tensor.to(at::kLong);
    case at::kUInt64:
      return tensor.view(at::kLong);
    default:
      return tensor;
  }
}

at::Tensor narrowed(const at::Tensor& tensor, c10::ScalarType type) {
  if (tensor.scalar_type() != at::kLong || type == at::kLong) return tensor;
  if (type == at::kUInt64) return tensor.view(at::kUInt64);
  if (type == at::kUInt32) return tensor.to(at::kInt).view(at::kUInt32);
  return type == at::kUInt16 ? tensor.to(at::kShort).view(at::kUInt16) : tensor;
}

at::Tensor ordered(const at::Tensor& tensor) {
  return is_wide_unsigned(tensor.scalar_type()) ? widened(tensor).bitwise_xor(kHighestBit) : widened(tensor);
}

at::Tensor from_ordered(const at::Tensor& tensor, c10::ScalarType type) {
  return narrowed(is_wide_unsigned(type) ? tensor.bitwise_xor(kHighestBit) : tensor, type);
}

bool is_reduced(c10::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

bool is_wide_unsigned(c10::ScalarType type) { return type == at::kUInt64; }

at::Tensor of_unsigned(const at::Tensor& a, const at::Tensor& b,
                       std::uint64_t (*compute)(std::uint64_t, std::uint64_t)) {
  const std::vector<at::Tensor> both = at::broadcast_tensors({a.view(at::kLong).cpu(), b.view(at::kLong).cpu()});
  const at::Tensor left = both[0].contiguous();
  const at::Tensor right = both[1].contiguous();
  const at::Tensor result = at::empty(left.sizes(), at::kLong);
  const auto* x = left.const_data_ptr<std::int64_t>();
  const auto* y = right.const_data_ptr<std::int64_t>();
  auto* out = result.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < result.numel(); ++i) {
    out[i] = static_cast<std::int64_t>(compute(static_cast<std::uint64_t>(x[i]), static_cast<std::uint64_t>(y[i])));
  }
  return result.to(a.device());
}

at::Tensor scalar_like(const at::Scalar& value, const at::Tensor& like) { return at::full({}, value, like.options()); }

}  // namespace exportguard::evaluator
