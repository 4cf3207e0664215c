#include <fmt/format.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "exportguard/common/errors.h"
#include "exportguard/quantization/blocks.h"
#include "python/bindings.h"

namespace exportguard::python {
namespace {

using quantization::BlockOptions;
using quantization::Layout;
using quantization::Matrix;

Layout layout_named(const std::string& name) {
  if (name == "columns") return Layout::kByColumns;
  if (name == "rows") return Layout::kByRows;
  throw InvalidArgument(fmt::format("layout must be 'columns' or 'rows', got '{}'", name));
}

DType dtype_of(const py::array& array) {
  if (array.dtype().kind() == 'f' && array.itemsize() == 4) return DType::kFloat32;
  if (array.dtype().kind() == 'f' && array.itemsize() == 2) return DType::kFloat16;
  throw InvalidArgument("a matrix of float32 or float16 is quantized, got " +
                        py::str(array.dtype()).cast<std::string>());
}

/// The array as it lies in memory, transposed or cut out of another one too.
Matrix matrix_of(const py::array& array) {
  if (array.ndim() != 2) throw InvalidArgument(fmt::format("a matrix has 2 axes, got {}", array.ndim()));
  const auto size = array.itemsize();
  return {.data = array.data(),
          .dtype = dtype_of(array),
          .rows = array.shape(0),
          .columns = array.shape(1),
          .row_stride = array.strides(0) / size,
          .column_stride = array.strides(1) / size};
}

using Parts = std::tuple<py::array, py::array, std::optional<py::array>>;

std::optional<Parts> quantize_blocks(const py::array& array, const BlockOptions& options) {
  const Matrix matrix = matrix_of(array);
  const quantization::BlockSizes sizes = quantization::sizes(matrix, options);
  py::array_t<std::uint8_t> values(static_cast<py::ssize_t>(sizes.values));
  py::array_t<std::uint8_t> zero_points(static_cast<py::ssize_t>(sizes.zero_points));
  const py::array scales(array.dtype(), std::vector<py::ssize_t>{static_cast<py::ssize_t>(sizes.scales)});

  const quantization::BlockOutputs outputs{.values = {values.mutable_data(), sizes.values},
                                           .scales = const_cast<void*>(scales.data()),
                                           .zero_points = {zero_points.mutable_data(), sizes.zero_points}};
  bool is_finite = false;
  {
    const py::gil_scoped_release release;
    is_finite = quantization::quantize(matrix, options, outputs);
  }
  if (!is_finite) return std::nullopt;
  return Parts{values, scales, options.is_symmetric ? std::optional<py::array>{} : zero_points};
}

}  // namespace

void bind_quantization(py::module_& m) {
  m.def(
      "quantize_blocks",
      [](const py::array& matrix, int bits, std::int64_t block, bool symmetric, const std::string& layout,
         std::size_t threads) {
        return quantize_blocks(matrix, {.bits = bits,
                                        .block = block,
                                        .is_symmetric = symmetric,
                                        .layout = layout_named(layout),
                                        .threads = threads});
      },
      py::arg("matrix"), py::kw_only(), py::arg("bits") = 4, py::arg("block") = 32, py::arg("symmetric") = true,
      py::arg("layout") = "columns", py::arg("threads") = 1,
      "Values, scales and zero points of a (K, N) matrix, flat, by columns or by rows; None if a number is not "
      "finite.");
}

}  // namespace exportguard::python
