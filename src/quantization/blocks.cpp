#include "exportguard/quantization/blocks.h"

#include <c10/util/Half.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <utility>
#include <vector>

#include "exportguard/common/errors.h"
#include "quantization/block.h"

namespace exportguard::quantization {
namespace {

constexpr std::int64_t kTile = 64;        // columns that are worked on together: lines side by side, and whole bytes
constexpr std::int64_t kLeastSpan = 256;  // rows of a column that are read at a time
constexpr std::int64_t kTurned = 8;       // rows that are turned together: as many lines of one set as a cache keeps
constexpr std::int64_t kApart = 16;       // numbers between columns, which would all have one set of the cache
constexpr std::int64_t kWork = 1 << 18;   // elements that a thread takes at once

std::int64_t divided_up(std::int64_t count, std::int64_t by) { return (count + by - 1) / by; }

std::size_t whole_bytes(std::int64_t values, int bits) {
  return static_cast<std::size_t>(divided_up(values * bits, 8));
}

/// Rows and columns from `first` to before `end`.
struct Region {
  std::int64_t first_row, end_row;
  std::int64_t first_column, end_column;
};

/// Room for what one thread works on: numbers of a tile, and their values with a byte each.
struct Room {
  std::vector<float> numbers;
  std::vector<std::uint8_t> values;
};

class Quantizer {
 public:
  Quantizer(const Matrix& matrix, const BlockOptions& options, const BlockOutputs& outputs)
      : matrix_(matrix),
        options_(options),
        outputs_(outputs),
        rule_{options.bits, options.is_symmetric, by_rows(), is_half(), !by_rows() && options.bits == 4},
        blocks_(divided_up(matrix.rows, options.block)),
        span_(options.block * std::max<std::int64_t>(1, kLeastSpan / options.block)),
        step_(span_ + kApart) {}

  /// Each thread takes the next region until none is left.
  bool run() {
    const std::vector<Region> regions = by_rows() ? bands() : groups_of_columns();
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      Room room{std::vector<float>(static_cast<std::size_t>(kTile * step_)),
                std::vector<std::uint8_t>(static_cast<std::size_t>(kTile * step_))};
      for (std::size_t i = next++; i < regions.size() && is_finite_; i = next++) quantize_region(regions[i], room);
    };
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < std::min(regions.size(), options_.threads); ++i) others.emplace_back(work);
    work();
    others.clear();  // joins
    return is_finite_;
  }

 private:
  bool by_rows() const { return options_.layout == Layout::kByRows; }
  bool is_half() const { return matrix_.dtype == DType::kFloat16; }

  /// All rows of some tiles: no two of them write to the same byte.
  std::vector<Region> groups_of_columns() const {
    const std::int64_t step =
        kTile * std::max<std::int64_t>(1, kWork / std::max<std::int64_t>(1, kTile * matrix_.rows));
    std::vector<Region> regions;
    for (std::int64_t first = 0; first < matrix_.columns; first += step) {
      regions.push_back({0, matrix_.rows, first, std::min(first + step, matrix_.columns)});
    }
    return regions;
  }

  /// All columns of some blocks of rows. Two blocks have an even number of elements in every row of scales.
  std::vector<Region> bands() const {
    const std::int64_t step = 2 * options_.block;
    std::vector<Region> regions;
    for (std::int64_t first = 0; first < matrix_.rows; first += step) {
      regions.push_back({first, std::min(first + step, matrix_.rows), 0, matrix_.columns});
    }
    return regions;
  }

  void quantize_region(const Region& region, Room& room) {
    for (std::int64_t row = region.first_row; row < region.end_row; row += span_) {
      for (std::int64_t column = region.first_column; column < region.end_column; column += kTile) {
        quantize_tile({row, std::min(row + span_, region.end_row), column, std::min(column + kTile, region.end_column)},
                      room);
      }
    }
  }

  void quantize_tile(const Region& tile, Room& room) {
    const std::int64_t rows = tile.end_row - tile.first_row;
    const bool is_direct = !is_half() && matrix_.row_stride == 1 && rows % std::int64_t{kLanes} == 0;
    if (!is_direct) read(tile, room);
    for (std::int64_t column = tile.first_column; column < tile.end_column; ++column) {
      const std::int64_t begin = (column - tile.first_column) * step_;
      const float* numbers =
          is_direct ? static_cast<const float*>(matrix_.data) + tile.first_row + column * matrix_.column_stride
                    : room.numbers.data() + begin;
      quantize_column(tile.first_row, rows, column, numbers, room.values.data() + begin);
    }
    if (by_rows()) write_rows(tile, room);
  }

  /// Some blocks of a column; by columns they are written to where they belong, by rows to `values`.
  void quantize_column(std::int64_t first, std::int64_t rows, std::int64_t column, const float* numbers,
                       std::uint8_t* values) {
    const std::size_t size = whole_bytes(options_.block, options_.bits);
    bool is_finite = routines_.all_finite(numbers, whole_vectors(rows));
    for (std::int64_t row = 0; row < rows; row += options_.block) {
      const std::int64_t count = std::min(options_.block, rows - row);
      const std::int64_t block = (first + row) / options_.block;
      std::uint8_t* to =
          by_rows() ? values + row : outputs_.values.data() + static_cast<std::size_t>(column * blocks_ + block) * size;
      const Scale found = routines_.quantize(rule_, numbers + row, whole_vectors(count), to);
      is_finite = is_finite && std::isfinite(found.scale);
      write_scale(block, column, found);
      if (!by_rows()) std::fill(to + whole_bytes(count, options_.bits), to + size, std::uint8_t{0});
    }
    if (!is_finite) is_finite_ = false;
  }

  static std::size_t whole_vectors(std::int64_t count) {
    return static_cast<std::size_t>(divided_up(count, kLanes)) * kLanes;
  }

  /// Numbers of the tile, column by column, each filled up with its zeros to a whole vector.
  void read(const Region& tile, Room& room) const {
    if (is_half()) {
      read_as<c10::Half>(tile, room);
    } else {
      read_as<float>(tile, room);
    }
  }

  template <typename T>
  void read_as(const Region& tile, Room& room) const {
    const std::int64_t rows = tile.end_row - tile.first_row;
    const std::int64_t columns = tile.end_column - tile.first_column;
    const T* from = static_cast<const T*>(matrix_.data) + tile.first_row * matrix_.row_stride +
                    tile.first_column * matrix_.column_stride;
    float* numbers = room.numbers.data();
    if (matrix_.row_stride == 1) {
      for (std::int64_t j = 0; j < columns; ++j)
        std::copy_n(from + j * matrix_.column_stride, rows, numbers + j * step_);
    } else {
      for (std::int64_t i = 0; i < rows; i += kTurned)
        turn(from + i * matrix_.row_stride, rows - i, columns, numbers + i);
    }
    const std::int64_t filled = divided_up(rows, kLanes) * static_cast<std::int64_t>(kLanes);
    for (std::int64_t j = 0; j < columns; ++j)
      std::fill(numbers + j * step_ + rows, numbers + j * step_ + filled, 0.0F);
  }

  /// A few rows, the rest if there are no more, as parts of columns.
  template <typename T>
  void turn(const T* from, std::int64_t rows, std::int64_t columns, float* to) const {
    const std::int64_t step = matrix_.column_stride;
    if (rows < kTurned) {
      for (std::int64_t j = 0; j < columns; ++j)
        for (std::int64_t i = 0; i < rows; ++i) to[j * step_ + i] = from[i * matrix_.row_stride + j * step];
      return;
    }
    for (std::int64_t j = 0; j < columns; ++j)
      for (std::int64_t i = 0; i < kTurned; ++i) to[j * step_ + i] = from[i * matrix_.row_stride + j * step];
  }

  void write_scale(std::int64_t block, std::int64_t column, const Scale& found) const {
    const std::int64_t at = by_rows() ? block * matrix_.columns + column : column * blocks_ + block;
    if (is_half()) {
      static_cast<c10::Half*>(outputs_.scales)[at] = found.scale;
    } else {
      static_cast<float*>(outputs_.scales)[at] = found.scale;
    }
    if (options_.is_symmetric) return;
    const auto padded = static_cast<std::int64_t>(8 * whole_bytes(blocks_, options_.bits)) / options_.bits;
    set(outputs_.zero_points, by_rows() ? at : column * padded + block, static_cast<std::uint8_t>(found.zero));
  }

  void write_rows(const Region& tile, const Room& room) const {
    const bool is_paired = options_.bits == 4 && matrix_.columns % 2 == 0;
    const std::int64_t columns = tile.end_column - tile.first_column;
    for (std::int64_t row = tile.first_row; row < tile.end_row; ++row) {
      const std::uint8_t* from = room.values.data() + (row - tile.first_row);
      const std::int64_t at = row * matrix_.columns + tile.first_column;
      if (is_paired) {
        std::uint8_t* to = outputs_.values.data() + at / 2;
        for (std::int64_t j = 0; j < columns; j += 2) to[j / 2] = paired(from[j * step_], from[(j + 1) * step_]);
      } else {
        for (std::int64_t j = 0; j < columns; ++j) set(outputs_.values, at + j, from[j * step_]);
      }
    }
  }

  /// Writes the value at a place, which with 4 bits is half of a byte.
  void set(std::span<std::uint8_t> values, std::int64_t at, std::uint8_t value) const {
    const auto place = static_cast<std::size_t>(at);
    if (options_.bits == 8) {
      values[place] = value;
    } else if (place % 2 == 0) {
      values[place / 2] = paired(value, values[place / 2] >> 4U);
    } else {
      values[place / 2] = paired(values[place / 2], value);
    }
  }

  static std::uint8_t paired(std::uint8_t first, std::uint8_t second) {
    return static_cast<std::uint8_t>((first & 15U) | (static_cast<unsigned>(second) << 4U));
  }

  const Matrix& matrix_;
  const BlockOptions& options_;
  const BlockOutputs& outputs_;
  BlockRule rule_;
  std::int64_t blocks_;
  std::int64_t span_;  // rows of a tile
  std::int64_t step_;  // from one of its columns to the next
  Routines routines_ = routines();
  std::atomic<bool> is_finite_{true};
};

void require_known(const Matrix& matrix, const BlockOptions& options) {
  if (options.bits != 4 && options.bits != 8) {
    throw InvalidArgument(fmt::format("bits must be 4 or 8, got {}", options.bits));
  }
  if (options.block < 16 || options.block % 16 != 0) {
    throw InvalidArgument(fmt::format("block must be a positive multiple of 16, got {}", options.block));
  }
  if (matrix.dtype != DType::kFloat32 && matrix.dtype != DType::kFloat16) {
    throw InvalidArgument(fmt::format("a matrix of float32 or float16 is quantized, got {}", name(matrix.dtype)));
  }
}

}  // namespace

BlockSizes sizes(const Matrix& matrix, const BlockOptions& options) {
  require_known(matrix, options);
  const std::int64_t blocks = divided_up(matrix.rows, options.block);
  const auto columns = static_cast<std::size_t>(matrix.columns);
  const std::size_t scales = static_cast<std::size_t>(blocks) * columns;
  if (options.layout == Layout::kByRows) {
    const std::size_t values = whole_bytes(matrix.rows * matrix.columns, options.bits);
    return {values, options.is_symmetric ? 0 : whole_bytes(blocks * matrix.columns, options.bits), scales};
  }
  const std::size_t values = scales * whole_bytes(options.block, options.bits);
  return {values, options.is_symmetric ? 0 : columns * whole_bytes(blocks, options.bits), scales};
}

bool quantize(const Matrix& matrix, const BlockOptions& options, const BlockOutputs& outputs) {
  const BlockSizes expected = sizes(matrix, options);
  if (outputs.values.size() != expected.values || outputs.zero_points.size() != expected.zero_points) {
    throw InvalidArgument(fmt::format("there must be room for {} bytes of values and {} of zero points, got {} and {}",
                                      expected.values, expected.zero_points, outputs.values.size(),
                                      outputs.zero_points.size()));
  }
  // Halves of bytes are written one by one; one that stands for nothing is 0, and in the
  // middle for the zero of a column.
  std::fill(outputs.zero_points.begin(), outputs.zero_points.end(), options.bits == 4 ? 0x88 : 0);
  if (options.layout == Layout::kByRows && !outputs.values.empty()) outputs.values.back() = 0;
  if (options.layout == Layout::kByRows && !outputs.zero_points.empty()) outputs.zero_points.back() = 0;
  return Quantizer(matrix, options, outputs).run();
}

}  // namespace exportguard::quantization
