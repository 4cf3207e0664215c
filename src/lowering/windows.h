#pragma once

#include <cstdint>
#include <vector>

#include "exportguard/lowering/context.h"

/// Windows over the last axes of a tensor [batch, channels, sizes…], written with operators that every dtype has: for
/// convolutions and pools in a dtype that the target has no kernel for.
namespace exportguard::lowering {

struct WindowGrid {
  std::vector<Size> kernel;
  std::vector<std::int64_t> stride;
  std::vector<std::int64_t> dilation;
  std::vector<std::int64_t> pads;  ///< of every spatial axis at its start, then of every one at its end; none below 0

  std::size_t spatial() const { return kernel.size(); }
};

/// How many windows fit on each axis: (size + pads - dilation (kernel - 1) - 1) / stride + 1.
std::vector<Size> window_counts(LoweringContext& ctx, Value* x, const WindowGrid& grid);

/// The spatial axes grown by `pads`, laid out as a WindowGrid's, with copies of `filler` (rank 0).
Value* with_margins(LoweringContext& ctx, Value* x, const std::vector<std::int64_t>& pads, Value* filler);

/// What the first `counts` windows hold, zero in the padding: [batch, channels, kernel…, counts…].
Value* windows_of(LoweringContext& ctx, Value* x, const WindowGrid& grid, const std::vector<Size>& counts);

/// The sums over the first `counts` windows: [batch, channels, counts…].
Value* window_sums(LoweringContext& ctx, Value* x, const WindowGrid& grid, const std::vector<Size>& counts);

/// The bias ([channels], or null for none) added to each channel of a result with so many spatial axes.
Value* with_bias(LoweringContext& ctx, Value* y, Value* bias, std::size_t spatial);

/// A convolution as a product of matrices: the weight is [out, in / groups, kernel…], the bias [out] or null.
Value* convolved(LoweringContext& ctx, const std::vector<Value*>& operands, const WindowGrid& grid,
                 std::int64_t groups);

/// A transposed convolution: the weight is [in, out / groups, kernel…] of known sizes. `pads` take away from the
/// result's ends, `output_padding` adds to the last one.
Value* convolved_transposed(LoweringContext& ctx, const std::vector<Value*>& operands, const WindowGrid& grid,
                            std::int64_t groups, const std::vector<std::int64_t>& output_padding);

}  // namespace exportguard::lowering
