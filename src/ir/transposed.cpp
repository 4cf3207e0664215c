#include "ir/transposed.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>

namespace exportguard::ir {
namespace {

constexpr std::int64_t kTile = 32;  // two tiles of 8-byte elements fit into the first cache

struct Matrix {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t stride;  // elements from one column to the next
};

template <typename T>
void copy_tiles(const void* from, void* to, const Matrix& matrix) {
  const T* source = static_cast<const T*>(from);
  T* target = static_cast<T*>(to);
  for (std::int64_t row = 0; row < matrix.rows; row += kTile) {
    const std::int64_t last_row = std::min(row + kTile, matrix.rows);
    for (std::int64_t column = 0; column < matrix.columns; column += kTile) {
      const std::int64_t last_column = std::min(column + kTile, matrix.columns);
      for (std::int64_t i = row; i < last_row; ++i) {
        for (std::int64_t j = column; j < last_column; ++j)
          target[i * matrix.columns + j] = source[i + j * matrix.stride];
      }
    }
  }
}

bool lies_in_columns(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.dim() == 2 && tensor.stride(0) == 1 && tensor.stride(1) >= tensor.size(0) &&
         tensor.numel() > 0 && !tensor.is_conj() && !tensor.is_neg();
}

}  // namespace

std::optional<at::Tensor> dense_of_columns(const at::Tensor& matrix) {
  if (!lies_in_columns(matrix)) return std::nullopt;
  const Matrix sizes{matrix.size(0), matrix.size(1), matrix.stride(1)};
  at::Tensor dense = at::empty(matrix.sizes(), matrix.options());
  const void* from = matrix.const_data_ptr();
  void* to = dense.mutable_data_ptr();

  switch (matrix.element_size()) {
    case 1:
      copy_tiles<std::uint8_t>(from, to, sizes);
      return dense;
    case 2:
      copy_tiles<std::uint16_t>(from, to, sizes);
      return dense;
    case 4:
      copy_tiles<std::uint32_t>(from, to, sizes);
      return dense;
    case 8:
      copy_tiles<std::uint64_t>(from, to, sizes);
      return dense;
    default:
      return std::nullopt;
  }
}

}  // namespace exportguard::ir
