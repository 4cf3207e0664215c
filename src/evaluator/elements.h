#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace exportguard::evaluator {

/// The same bits as a dtype that has kernels: float8 and the unsigned integers above 8 bits as a signed integer of that
/// size, all else as it is. No copy.
at::Tensor as_bits(const at::Tensor& tensor);

/// What only moves elements, on every dtype.
template <typename Move>
at::Tensor moved(const at::Tensor& tensor, Move move) {
  const at::Tensor bits = as_bits(tensor);
  return bits.scalar_type() == tensor.scalar_type() ? move(tensor) : move(bits).view(tensor.scalar_type());
}

/// Unsigned 16 and 32 bits as int64, 64 bits as the int64 of the same bits: sums, products and bitwise operators wrap
/// alike. All else as it is.
at::Tensor widened(const at::Tensor& tensor);
/// Inverse of `widened`.
at::Tensor narrowed(const at::Tensor& tensor, c10::ScalarType type);

/// `widened` so that the numbers have their order: the highest of 64 unsigned bits is flipped.
at::Tensor ordered(const at::Tensor& tensor);
/// Inverse of `ordered`.
at::Tensor from_ordered(const at::Tensor& tensor, c10::ScalarType type);

bool is_reduced(c10::ScalarType type);        ///< float16, bfloat16
bool is_wide_unsigned(c10::ScalarType type);  ///< 64 bits, which no signed integer holds

/// Computed in float32 and rounded once if `tensor` is float16 or bfloat16.
template <typename Compute>
at::Tensor in_float(const at::Tensor& tensor, Compute compute) {
  if (!is_reduced(tensor.scalar_type())) return compute(tensor);
  return compute(tensor.to(at::kFloat)).to(tensor.scalar_type());
}

/// float16 and bfloat16 as float32, all else as it is.
inline at::Tensor raised(const at::Tensor& tensor) {
  return is_reduced(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
}

/// `compute(x, y)` of each pair of elements of two uint64 tensors, broadcast; on the CPU.
at::Tensor of_unsigned(const at::Tensor& a, const at::Tensor& b,
                       std::uint64_t (*compute)(std::uint64_t, std::uint64_t));

/// A tensor of rank 0 on the device of `like`.
at::Tensor scalar_like(const at::Scalar& value, const at::Tensor& like);

}  // namespace exportguard::evaluator
