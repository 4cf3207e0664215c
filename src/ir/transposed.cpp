#include "ir/transposed.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace exportguard::ir {
namespace {

constexpr std::int64_t kRows = 64;  // four lines of the cache side by side, of elements of 4 bytes
constexpr std::int64_t kLine = 64;  // bytes

struct Matrix {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t stride;  // elements from one column to the next
};

// Tiles of a line's columns. They lie at a power of two from each other where a matrix has as many rows, and would all
// take the same set of the cache: each is copied first to where its columns lie one after the other.
template <typename T>
void copy_tiles(const void* from, void* to, const Matrix& matrix) {
  constexpr std::int64_t kColumns = kLine / sizeof(T);
  const T* source = static_cast<const T*>(from);
  T* target = static_cast<T*>(to);
  std::array<T, kRows * kColumns> tile;
  for (std::int64_t row = 0; row < matrix.rows; row += kRows) {
    const std::int64_t rows = std::min(kRows, matrix.rows - row);
    for (std::int64_t column = 0; column < matrix.columns; column += kColumns) {
      const std::int64_t columns = std::min(kColumns, matrix.columns - column);
      for (std::int64_t j = 0; j < columns; ++j)
        std::copy_n(source + row + (column + j) * matrix.stride, rows, tile.data() + j * kRows);
      for (std::int64_t i = 0; i < rows; ++i) {
        T* into = target + (row + i) * matrix.columns + column;
        for (std::int64_t j = 0; j < columns; ++j) into[j] = tile[static_cast<std::size_t>(j * kRows + i)];
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
