#include <algorithm>
#include <optional>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/kernels.h"
#include "lowering/reductions.h"
#include "lowering/size_arithmetic.h"

// What torchao's and PyTorch's quantization of exported programs leave in them, as QuantizeLinear and DequantizeLinear.

namespace exportguard::lowering {
namespace {

/// The integers that a tensor is rounded to.
struct Range {
  std::int64_t low;
  std::int64_t high;
  DType dtype;
};

/// How a tensor is rounded: by one scale and zero point, or one for each slice along an axis.
struct Grid {
  Value* scale;                      ///< float32
  Value* zero_point;                 ///< int64
  std::optional<std::int64_t> axis;  ///< nothing: one for the tensor
};

std::optional<Range> limits_of(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return Range{-128, 127, dtype};
    case DType::kUint8:
      return Range{0, 255, dtype};
    case DType::kInt16:
      return Range{-32768, 32767, dtype};
    case DType::kUint16:
      return Range{0, 65535, dtype};
    default:
      return std::nullopt;
  }
}

/// QuantizeLinear of 16 bits is an operator from opset 21 on.
bool has_operator(LoweringContext& ctx, DType dtype) {
  const bool is_byte = dtype == DType::kInt8 || dtype == DType::kUint8;
  return is_byte || (ctx.opset() >= 21 && limits_of(dtype).has_value());
}

Grid tensor_grid(LoweringContext& ctx) {
  const auto number = [&](std::size_t i, DType dtype) {
    Value* value = ctx.scalar(i, dtype);
    return ctx.rank(value) == 0 ? value : ctx.reshape(value, {});
  };
  return {number(1, DType::kFloat32), number(2, DType::kInt64), std::nullopt};
}

Grid channel_grid(LoweringContext& ctx) {
  Value* scale = ctx.cast(ctx.input(1), DType::kFloat32);
  Value* zero_point = ctx.find_input(2);
  if (zero_point == nullptr) zero_point = ctx.filled(ctx.sizes_of(scale), ctx.constant(0, DType::kInt64));
  return {scale, ctx.cast(zero_point, DType::kInt64), ctx.axis(3, ctx.rank(ctx.input(0)))};
}

ir::AttributeList axis_of(const Grid& grid) {
  std::vector<ir::NamedAttribute> attributes;
  if (grid.axis) attributes.emplace_back("axis", *grid.axis);
  return {std::move(attributes)};
}

/// A scale or zero point so that it broadcasts with a tensor of that rank.
Value* spread(LoweringContext& ctx, const Grid& grid, Value* parameter, std::size_t rank) {
  return grid.axis ? ctx.unsqueeze(parameter, other_axes(rank, *grid.axis)) : parameter;
}

/// round(x / scale) + zero point, kept in the range; a float64 of whole numbers.
Value* rounded(LoweringContext& ctx, Value* x, const Grid& grid, const Range& range) {
  const std::size_t rank = ctx.rank(x);
  const auto wide = [&](Value* value) { return ctx.cast(spread(ctx, grid, value, rank), DType::kFloat64); };
  Value* whole = ctx.op("Round", {ctx.op("Div", {ctx.cast(x, DType::kFloat64), wide(grid.scale)})});
  Value* moved = ctx.op("Add", {whole, wide(grid.zero_point)});
  Value* low = ctx.constant(static_cast<double>(range.low), DType::kFloat64);
  return ctx.op("Clip", {moved, low, ctx.constant(static_cast<double>(range.high), DType::kFloat64)});
}

Value* quantized(LoweringContext& ctx, Value* x, const Grid& grid, const Range& range) {
  if (!has_operator(ctx, range.dtype)) return ctx.cast(rounded(ctx, x, grid, range), range.dtype);
  Value* zero_point = ctx.cast(grid.zero_point, range.dtype);
  Value* whole = ctx.op("QuantizeLinear", {ctx.cast(x, DType::kFloat32), grid.scale, zero_point}, axis_of(grid));
  whole->set_type(ir::Type::tensor(range.dtype, x->type().shape));
  const Range limits = *limits_of(range.dtype);
  const bool is_full = range.low <= limits.low && range.high >= limits.high;
  if (is_full) return whole;
  Value* high = ctx.constant(range.high, range.dtype);
  return same_dtype_op(ctx, "Clip", {whole, ctx.constant(range.low, range.dtype), high});
}

Value* dequantized(LoweringContext& ctx, Value* whole, const Grid& grid) {
  if (!has_operator(ctx, whole->dtype())) {
    const std::size_t rank = ctx.rank(whole);
    Value* steps = ctx.op("Sub", {ctx.cast(whole, DType::kInt64), spread(ctx, grid, grid.zero_point, rank)});
    return ctx.op("Mul", {ctx.cast(steps, DType::kFloat32), spread(ctx, grid, grid.scale, rank)});
  }
  Value* x = ctx.op("DequantizeLinear", {whole, grid.scale, ctx.cast(grid.zero_point, whole->dtype())}, axis_of(grid));
  x->set_type(ir::Type::tensor(DType::kFloat32, whole->type().shape));
  return x;
}

// quantize_per_tensor(input, scale, zero_point, quant_min, quant_max, dtype); per channel the axis comes third.

Range range_at(LoweringContext& ctx, std::size_t first) {
  return {ctx.integer(first), ctx.integer(first + 1), ctx.dtype(first + 2)};
}

void lower_quantize(LoweringContext& ctx) {
  ctx.result(quantized(ctx, ctx.input(0), tensor_grid(ctx), range_at(ctx, 3)));
}

void lower_quantize_channels(LoweringContext& ctx) {
  ctx.result(quantized(ctx, ctx.input(0), channel_grid(ctx), range_at(ctx, 4)));
}

void lower_dequantize(LoweringContext& ctx) { ctx.result(dequantized(ctx, ctx.input(0), tensor_grid(ctx))); }
void lower_dequantize_channels(LoweringContext& ctx) { ctx.result(dequantized(ctx, ctx.input(0), channel_grid(ctx))); }

// ------------------------------------------------------------------------------------------------ rounding in training

/// The narrowest integers that hold the range.
DType holder_of(LoweringContext& ctx, std::int64_t low, std::int64_t high) {
  for (const DType dtype : {DType::kInt8, DType::kUint8, DType::kInt16, DType::kUint16}) {
    const Range limits = *limits_of(dtype);
    if (has_operator(ctx, dtype) && limits.low <= low && high <= limits.high) return dtype;
  }
  return DType::kInt32;
}

/// A zero point of floats is added before the sum is rounded, one of integers behind
/// (`fake_quant_per_channel_cachemask_cpu`, torch 2.11 to 2.13).
Value* on_grid_of_floats(LoweringContext& ctx, const Grid& grid, std::int64_t low, std::int64_t high) {
  const std::size_t rank = ctx.rank(ctx.input(0));
  Value* scale = spread(ctx, grid, grid.scale, rank);
  Value* zero_point = spread(ctx, grid, ctx.cast(ctx.input(2), DType::kFloat32), rank);
  Value* steps = ctx.op("Mul", {ctx.cast(ctx.input(0), DType::kFloat32), ctx.op("Reciprocal", {scale})});
  Value* whole = ctx.op("Round", {ctx.op("Add", {steps, zero_point})});
  const auto limit = [&](std::int64_t number) { return ctx.constant(static_cast<double>(number), DType::kFloat32); };
  Value* kept = ctx.op("Clip", {whole, limit(low), limit(high)});
  return ctx.op("Mul", {ctx.op("Sub", {kept, zero_point}), scale});
}

/// The tensor on its grid, and whether each element was within the range, which only gradients need.
void give_fake(LoweringContext& ctx, const Grid& grid, std::size_t first) {
  Value* x = ctx.input(0);
  const std::int64_t low = ctx.integer(first);
  const std::int64_t high = ctx.integer(first + 1);
  const Value* zero_point = grid.axis ? ctx.find_input(2) : nullptr;
  Value* y = nullptr;
  if (zero_point && is_floating(zero_point->dtype())) {
    y = on_grid_of_floats(ctx, grid, low, high);
  } else {
    y = dequantized(ctx, quantized(ctx, x, grid, {low, high, holder_of(ctx, low, high)}), grid);
  }
  std::vector<Value*> results = {ctx.cast(y, x->dtype())};
  if (ctx.node().output_count() == 2) {
    ctx.require(ctx.node().output(1).is_unused(), "the mask of gradients has no ONNX form");
    results.push_back(nullptr);
  }
  ctx.results(results);
}

void lower_fake_quantize(LoweringContext& ctx) { give_fake(ctx, tensor_grid(ctx), 3); }
void lower_fake_quantize_channels(LoweringContext& ctx) { give_fake(ctx, channel_grid(ctx), 4); }

// ------------------------------------------------------------------------------------------------ dynamic ranges

/// choose_qparams(input, quant_min, quant_max, eps, dtype): the scale that the range of the input, with 0 in it, fits
/// into, at least eps, and the zero point.
void lower_choose_parameters(LoweringContext& ctx) {
  Value* x = ctx.cast(ctx.input(0), DType::kFloat32);
  Value* zero = ctx.constant(0, DType::kFloat32);
  Value* low = ctx.op("Min", {extreme_value(ctx, x, Extreme::kSmallest, {}), zero});
  Value* high = ctx.op("Max", {extreme_value(ctx, x, Extreme::kLargest, {}), zero});
  const double steps = static_cast<double>(ctx.integer(2) - ctx.integer(1));
  Value* scale = ctx.op("Div", {ctx.op("Sub", {high, low}), ctx.constant(steps, DType::kFloat32)});
  scale = ctx.op("Max", {scale, ctx.constant(ctx.number(3), DType::kFloat32)});
  Value* least = ctx.constant(static_cast<double>(ctx.integer(1)), DType::kFloat32);
  Value* most = ctx.constant(static_cast<double>(ctx.integer(2)), DType::kFloat32);
  Value* place = ctx.op("Sub", {least, ctx.op("Round", {ctx.op("Div", {low, scale})})});
  ctx.results({scale, ctx.cast(ctx.op("Clip", {place, least, most}), DType::kInt64)});
}

// ------------------------------------------------------------------------------------------------ blocks of torchao

/// For each axis of a tensor of blocks how many blocks it has and how long one is.
struct Blocks {
  std::vector<Size> counts;
  std::vector<Size> lengths;
};

Blocks blocks_of(LoweringContext& ctx, Value* x, const std::vector<Size>& lengths) {
  Blocks blocks{{}, lengths};
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const Size size = size_of(ctx, x, static_cast<std::int64_t>(i));
    const auto length = lengths[i].number();
    if (length == 1) {
      blocks.counts.push_back(size);
    } else if (size.number() && length) {
      blocks.counts.emplace_back(*size.number() / *length);
    } else {
      blocks.counts.emplace_back(1);  // a length that is no number is the size of its axis
    }
  }
  return blocks;
}

/// How long the blocks along the last axis are, if they are rows of it; nothing for others.
std::optional<std::int64_t> row_length(const Blocks& blocks) {
  const bool is_row = std::all_of(blocks.lengths.begin(), blocks.lengths.end() - 1,
                                  [](const Size& length) { return length.number() == 1; });
  return is_row ? blocks.lengths.back().number() : std::nullopt;
}

/// A scale or zero point that has an element for each element of the tensor.
Value* over_blocks(LoweringContext& ctx, Value* parameter, const Blocks& blocks) {
  std::vector<Size> apart;
  std::vector<Size> whole;
  std::vector<Size> joined;
  for (std::size_t i = 0; i < blocks.counts.size(); ++i) {
    apart.insert(apart.end(), {blocks.counts[i], 1});
    whole.insert(whole.end(), {blocks.counts[i], blocks.lengths[i]});
    joined.push_back(multiply(ctx, blocks.counts[i], blocks.lengths[i]));
  }
  return ctx.reshape(ctx.expand(ctx.reshape(parameter, apart), whole), joined);
}

/// torchao::dequantize_affine(input, block_size, scale, zero_point, input_dtype, quant_min, quant_max, output_dtype)
void lower_dequantize_blocks(LoweringContext& ctx) {
  constexpr std::int64_t kBlocksFrom = 21;  // opset
  Value* x = ctx.input(0);
  const Blocks blocks = blocks_of(ctx, x, ctx.sizes(1));
  Value* scale = ctx.cast(ctx.reshape(ctx.input(2), blocks.counts), DType::kFloat32);
  Value* zero_point = ctx.find_input(3);
  if (zero_point != nullptr) zero_point = ctx.reshape(zero_point, blocks.counts);

  const auto row = row_length(blocks);
  const bool is_whole = zero_point == nullptr || is_integral(zero_point->dtype());
  const bool is_byte = x->dtype() == DType::kInt8 || x->dtype() == DType::kUint8;
  if (row && is_whole && is_byte && ctx.opset() >= kBlocksFrom) {
    std::vector<Value*> operands = {x, scale};
    if (zero_point != nullptr) operands.push_back(ctx.cast(zero_point, x->dtype()));
    return ctx.result(ctx.op("DequantizeLinear", operands, {{"axis", std::int64_t{-1}}, {"block_size", *row}}));
  }

  Value* steps = ctx.cast(x, DType::kFloat32);
  if (zero_point != nullptr) {
    steps = ctx.op("Sub", {steps, over_blocks(ctx, ctx.cast(zero_point, DType::kFloat32), blocks)});
  }
  ctx.result(ctx.op("Mul", {steps, over_blocks(ctx, scale, blocks)}));
}

/// Signed bytes as unsigned ones, of which 128 stands for 0: some processors saturate sums of products of both kinds.
Value* unsigned_bytes(LoweringContext& ctx, Value* x) {
  if (x->dtype() == DType::kUint8) return x;
  Value* moved = ctx.op("Add", {ctx.cast(x, DType::kInt32), ctx.constant(128, DType::kInt32)});
  return ctx.cast(moved, DType::kUint8);
}

/// aten::_int_mm(self, mat2): int32 sums of products of bytes.
void lower_int_mm(LoweringContext& ctx) {
  std::vector<Value*> operands;
  std::vector<Value*> zero_points;
  for (const std::size_t i : {0U, 1U}) {
    Value* x = ctx.input(i);
    operands.push_back(unsigned_bytes(ctx, x));
    zero_points.push_back(ctx.constant(x->dtype() == DType::kUint8 ? 0 : 128, DType::kUint8));
  }
  operands.insert(operands.end(), zero_points.begin(), zero_points.end());
  ctx.result(ctx.op("MatMulInteger", operands));
}

}  // namespace

void populate_quantization(LoweringTable& table) {
  table.add({"quantized_decomposed.quantize_per_tensor.default", "quantized_decomposed.quantize_per_tensor.tensor",
             "quantized_decomposed.quantize_per_tensor.tensor2"},
            lower_quantize);
  table.add({"quantized_decomposed.dequantize_per_tensor.default", "quantized_decomposed.dequantize_per_tensor.tensor",
             "quantized_decomposed.dequantize_per_tensor.tensor2"},
            lower_dequantize);
  table.add("quantized_decomposed.quantize_per_channel.default", lower_quantize_channels);
  table.add("quantized_decomposed.dequantize_per_channel.default", lower_dequantize_channels);
  table.add("quantized_decomposed.choose_qparams.tensor", lower_choose_parameters);
  table.add("torchao.dequantize_affine.default", lower_dequantize_blocks);
  table.add("aten._int_mm.default", lower_int_mm);
  table.add({"aten.fake_quantize_per_tensor_affine.default", "aten.fake_quantize_per_tensor_affine.tensor_qparams",
             "aten.fake_quantize_per_tensor_affine_cachemask.default"},
            lower_fake_quantize);
  table.add(
      {"aten.fake_quantize_per_channel_affine.default", "aten.fake_quantize_per_channel_affine_cachemask.default"},
      lower_fake_quantize_channels);
}

}  // namespace exportguard::lowering
