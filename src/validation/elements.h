#pragma once

#include <c10/core/ScalarType.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "validation/figures.h"
#include "validation/lanes.h"

namespace at {
class Tensor;
}

namespace exportguard::validation {

/// What the pairs of two tensors are compared as.
enum class Arithmetic { kFloat, kDouble, kInteger, kComplex };

/// @throws InvalidArgument for types without numbers of their own (quantized ones).
Arithmetic arithmetic_of(c10::ScalarType expected, c10::ScalarType got);

/// The scale of the coarser of two types for distances in units in the last place, in the arithmetic that they are
/// compared with; that of the arithmetic itself for whole numbers.
UlpScale ulp_scale(c10::ScalarType expected, c10::ScalarType got, Arithmetic arithmetic);

/// `Elements::integers` gives uint64 less this much, so that int64 holds it and differences stay exact.
inline constexpr double kUnsignedOffset = 9223372036854775808.0;

/// The elements of a tensor in row-major order, whatever its strides, converted a run at a time. Borrows the tensor.
class Elements {
 public:
  explicit Elements(const at::Tensor& tensor);

  /// Where the elements from `begin` lie side by side as `packing()` says; null where they do not.
  const void* find_packed(std::int64_t begin) const;
  Packing packing() const;

  /// The elements [begin, begin + count): where they lie, if they are of that type side by side, else in `into`.
  const float* floats(std::int64_t begin, std::size_t count, float* into) const;
  const double* doubles(std::int64_t begin, std::size_t count, double* into) const;
  const std::int64_t* integers(std::int64_t begin, std::size_t count, std::int64_t* into) const;
  const std::complex<double>* complexes(std::int64_t begin, std::size_t count, std::complex<double>* into) const;

 private:
  template <typename To>
  const To* fetch(std::int64_t begin, std::size_t count, To* into, c10::ScalarType own) const;
  template <typename To>
  void convert(std::int64_t begin, std::size_t count, To* into) const;
  template <typename From, typename To>
  void convert_from(std::int64_t begin, std::size_t count, To* into) const;

  const char* data_;
  c10::ScalarType type_;
  std::size_t item_;
  bool is_dense_;
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> strides_;
};

}  // namespace exportguard::validation
