#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "exportguard/common/dtypes.h"

namespace exportguard::quantization {

/// A matrix of `rows` (the K of a product) and `columns` (its N), wherever its elements lie; borrowed. Strides are in
/// elements.
struct Matrix {
  const void* data;
  DType dtype;  ///< kFloat32 or kFloat16
  std::int64_t rows, columns;
  std::int64_t row_stride, column_stride;
};

/// In which order values are written.
enum class Layout {
  kByColumns,  ///< MatMulNBits of onnxruntime: (columns, blocks, block), a last block that is not full filled up
  kByRows,     ///< DequantizeLinear by blocks along axis 0: (rows, columns)
};

struct BlockOptions {
  int bits = 4;             ///< 4 or 8
  std::int64_t block = 32;  ///< elements of a column that share a scale; a multiple of 16
  /// One scale for numbers around zero, which is in the middle; else a zero point for each block, too.
  bool is_symmetric = true;
  Layout layout = Layout::kByColumns;
  std::size_t threads = 1;
};

/// Sizes in bytes of what `quantize` writes.
struct BlockSizes {
  std::size_t values, zero_points;
  std::size_t scales;  ///< in elements of the matrix's dtype
};

/// Where it writes to. Values and zero points of 4 bits lie two to a byte, the first in its lower half; scales are of
/// the matrix's dtype. By columns: values and zero points from 0 to 2^bits - 1, each column's on a byte of its own. By
/// rows: scales and zero points (blocks, columns), packed throughout; symmetric values are signed.
struct BlockOutputs {
  std::span<std::uint8_t> values;
  void* scales;
  std::span<std::uint8_t> zero_points;  ///< not read where `is_symmetric`
};

/// @throws InvalidArgument for other bits or blocks than those of BlockOptions, or a dtype that is no matrix's.
BlockSizes sizes(const Matrix& matrix, const BlockOptions& options);

/// Quantizes as onnxruntime's quantizers do, to the bit: a scale is that of the number of largest magnitude, which
/// becomes the end that has one step more, or of the range that includes zero; numbers are multiplied by the reciprocal
/// of the scale as it is stored, and halves go away from zero. A block whose scale has no finite reciprocal is zero.
///
/// Returns false where a number or a scale is not finite; what was written is of no use then.
/// @throws InvalidArgument as `sizes` does, and for outputs of other sizes.
bool quantize(const Matrix& matrix, const BlockOptions& options, const BlockOutputs& outputs);

}  // namespace exportguard::quantization
