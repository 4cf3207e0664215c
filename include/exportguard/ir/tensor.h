#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exportguard/common/dtypes.h"

namespace at {
class Tensor;
}

namespace exportguard::ir {

/// A constant tensor: a handle on an `at::Tensor`, kept out of this header so that code that sees
/// protobuf never sees ATen. Shares the storage; nothing is copied until bytes are asked for.
class Tensor {
 public:
  explicit Tensor(const at::Tensor& tensor);  ///< shares; any strides

  static Tensor ints(std::span<const std::int64_t> values);  ///< int64[n]
  static Tensor ints(std::initializer_list<std::int64_t> values);
  static Tensor scalar(std::int64_t value, DType dtype);  ///< rank 0; bool as well
  static Tensor scalar(double value, DType dtype);        ///< rank 0; NaN and inf as well
  static Tensor filled(double value, DType dtype, std::span<const std::int64_t> shape);
  static Tensor strings(std::vector<std::string> values);  ///< string[n]; no at::Tensor behind it
  /// The same of any shape, in C order. @throws InvalidArgument unless the shape has as many places.
  static Tensor strings(std::vector<std::string> values, std::vector<std::int64_t> shape);

  /// Elements in C order as ONNX stores them, where they lie: `owner` keeps the memory alive. Elements of less than a
  /// byte are unpacked, and those that are not aligned copied; all else is shared, so `data` may be a mapped file.
  /// @throws InvalidArgument unless `bytes` is what dtype and shape take.
  static Tensor from_memory(DType dtype, std::vector<std::int64_t> shape, std::span<const std::byte> bytes,
                            std::shared_ptr<const void> owner);
  /// Elements of `dtype`, one to an element of `stored`: dtypes that torch does not have (`f4e2m1`, `u2`, `i2`) have
  /// their bits in the low ones of an 8-bit integer. @throws InvalidArgument if `stored` is no such tensor.
  static Tensor stored_as(DType dtype, const at::Tensor& stored);

  /// Bytes that dense elements take, as ONNX stores them. @throws InvalidArgument for sizes that no tensor can have.
  static std::size_t nbytes_of(DType dtype, std::span<const std::int64_t> shape);

  DType dtype() const noexcept { return dtype_; }
  const std::vector<std::int64_t>& shape() const noexcept { return shape_; }
  std::int64_t numel() const noexcept;
  std::size_t nbytes() const noexcept;  ///< of the dense elements, as ONNX stores them

  /// @throws GraphError for strings.
  const at::Tensor& aten() const;
  const std::vector<std::string>& strings() const;  ///< @throws GraphError unless strings

  /// Calls `sink(pointer, bytes)` with the elements in C order, in pieces of at most `piece` bytes.
  /// Contiguous CPU storage is passed as it is; anything else is made contiguous a piece at a time,
  /// so that no more than `piece` extra bytes are held.
  template <typename Sink>
  void visit_bytes(Sink&& sink, std::size_t piece = std::size_t{64} << 20) const {
    visit([](void* s, const void* p, std::size_t n) { (*static_cast<std::remove_reference_t<Sink>*>(s))(p, n); }, &sink,
          piece);
  }

  /// Elements of an integer or bool tensor. @throws GraphError for another dtype.
  std::vector<std::int64_t> to_ints() const;
  /// Elements of a numeric tensor. @throws GraphError for strings and complex.
  std::vector<double> to_doubles() const;

  /// Identity of the memory: equal for two tensors that show the same elements of one storage
  /// (data pointer, dtype, shape and strides), as tied weights do.
  std::string identity() const;

  /// Same dtype, shape and bits.
  friend bool operator==(const Tensor& a, const Tensor& b);

 private:
  Tensor() = default;
  void visit(void (*sink)(void*, const void*, std::size_t), void* state, std::size_t piece) const;

  std::shared_ptr<const at::Tensor> tensor_;  ///< null for strings
  std::shared_ptr<const std::vector<std::string>> strings_;
  DType dtype_ = DType::kUndefined;
  std::vector<std::int64_t> shape_;
};

}  // namespace exportguard::ir
