// QuantizeLinear and its relatives. Products of quantized numbers are exact: computed in float64, which holds them.
#include <ATen/ops/clamp.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>

#include <algorithm>

#include "evaluator/call.h"
#include "evaluator/conversion.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"
#include "evaluator/windows.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;

// A scale for all, for each index of an axis, or for each block along it, in the sizes of `x`.
Tensor spread(const Call& call, const Tensor& scale, const Tensor& x) {
  if (scale.numel() == 1 && scale.dim() <= 1) return scale.reshape({});
  const std::int64_t axis = call.axis(call.integer("axis", 1), x.dim());
  const std::int64_t block = call.integer("block_size", 0);
  if (scale.dim() == 1 && block == 0) {
    std::vector<std::int64_t> view(static_cast<std::size_t>(x.dim()), 1);
    view[static_cast<std::size_t>(axis)] = scale.size(0);
    return scale.reshape(view);
  }
  call.require(block > 0 && scale.dim() == x.dim(),
               "a scale for each block needs block_size and the rank of the input");
  return scale.repeat_interleave(block, axis).narrow(axis, 0, x.size(axis));
}

struct Bounds {
  double lowest;
  double highest;
};

std::optional<Bounds> integer_bounds(DType dtype) {
  if (!is_integral(dtype) || bit_width(dtype) > 32) return std::nullopt;
  const double values = static_cast<double>(std::int64_t{1} << bit_width(dtype));
  return is_unsigned(dtype) ? Bounds{0, values - 1} : Bounds{-values / 2, values / 2 - 1};
}

// Numbers already divided by the scale, as integers around `zero` (or as a float8 or smaller float).
Datum quantized(const Tensor& scaled, const std::optional<Tensor>& zero, DType to, bool saturate) {
  const auto bounds = integer_bounds(to);
  if (!bounds)
    return converted(Datum::of(zero ? scaled.add(*zero) : scaled, DType::kFloat32), to, {.saturate = saturate});
  Tensor whole = scaled.round();
  if (zero) whole = whole.add(*zero);
  return converted(Datum::of(whole.nan_to_num(0.0).clamp(bounds->lowest, bounds->highest).to(at::kLong), DType::kInt64),
                   to);
}

DType dtype_attribute(const Call& call, std::string_view name, DType otherwise) {
  const std::int64_t number = call.integer(name, 0);
  call.require(number >= 0 && number <= static_cast<std::int64_t>(DType::kInt2), "there is no such dtype");
  return number == 0 ? otherwise : static_cast<DType>(number);
}

Tensor as_float(const Datum& datum) { return readable(datum).to(at::kFloat); }

// The quotient is computed in float32, or in the dtype `precision`; a sum with the zero point follows the rounding.
void run_quantize_linear(Call& call) {
  const Tensor x = as_float(call.datum(0));
  const Tensor scale = spread(call, as_float(call.datum(1)), x);
  const DType to = call.has(2) ? call.dtype(2) : dtype_attribute(call, "output_dtype", DType::kUint8);
  std::optional<Tensor> zero;
  if (call.has(2)) zero = spread(call, as_float(call.datum(2)), x);
  const DType precision = dtype_attribute(call, "precision", DType::kFloat32);
  const Tensor quotient = x.div(scale).to(storage_of(precision)).to(at::kFloat);
  call.result(quantized(quotient, zero, to, call.flag("saturate", true)));
}

void run_dequantize_linear(Call& call) {
  const Datum& datum = call.datum(0);
  const bool is_wide = call.dtype(0) == DType::kInt32;  // more than float32 holds
  Tensor x = is_wide ? call.input(0).to(at::kDouble) : as_float(datum);
  if (call.has(2)) x = x.sub(spread(call, as_float(call.datum(2)), x));
  const DType to = dtype_attribute(call, "output_dtype", call.dtype(1));
  const Tensor product = x.to(at::kFloat).mul(spread(call, as_float(call.datum(1)), x));
  call.result(converted(Datum::of(product, DType::kFloat32), to));
}

void run_dynamic_quantize_linear(Call& call) {
  const Tensor x = call.input(0);
  const Tensor lowest = x.numel() == 0 ? scalar_like(0, x) : x.min().clamp_max(0);
  const Tensor highest = x.numel() == 0 ? scalar_like(0, x) : x.max().clamp_min(0);
  const Tensor step = highest.sub(lowest).div(255);
  const Tensor scale = step.masked_fill(step.eq(0), 1);  // of zeros alone, for which ONNX has no scale; as onnxruntime
  const Tensor zero = lowest.neg().div(scale).nan_to_num(0.0).clamp(0, 255).round();
  call.result(quantized(x.div(scale), zero, DType::kUint8, true));
  call.result(scale);
  call.result(zero.to(at::kByte), DType::kUint8);
}

// ---------------------------------------------------------------- products

Tensor centered(const Call& call, std::size_t value, std::size_t zero, std::int64_t axis) {
  const Tensor x = call.input(value).to(at::kDouble);
  if (!call.has(zero)) return x;
  const Tensor z = call.input(zero).to(at::kDouble);
  if (z.numel() == 1) return x.sub(z.reshape({}));
  if (z.dim() > 1) return x.sub(z);
  std::vector<std::int64_t> view(static_cast<std::size_t>(x.dim()), 1);
  view[static_cast<std::size_t>(call.axis(axis, x.dim()))] = z.numel();
  return x.sub(z.reshape(view));
}

void run_matmul_integer(Call& call) {
  call.result(at::matmul(centered(call, 0, 2, -2), centered(call, 1, 3, -1)).to(at::kInt));
}

// Along the last axis of what it scales, as a row or for all.
Tensor as_row(const Tensor& scale) { return scale.numel() == 1 ? scale.reshape({}) : scale; }

void run_qlinear_matmul(Call& call) {
  const Tensor product = at::matmul(centered(call, 0, 2, -2), centered(call, 3, 5, -1));
  Tensor a_scale = as_row(call.input(1).to(at::kDouble));
  if (a_scale.dim() == 1) a_scale = a_scale.unsqueeze(-1);  // for each row
  const Tensor scale = a_scale.mul(as_row(call.input(4).to(at::kDouble)));
  const Tensor scaled = product.mul(scale).div(as_row(call.input(6).to(at::kDouble)));
  call.result(quantized(scaled, as_row(call.input(7).to(at::kDouble)), call.dtype(7), true));
}

Tensor convolved(const Call& call, const Tensor& x, const Tensor& weight) {
  const std::vector<std::int64_t> kernel(weight.sizes().begin() + std::min<std::int64_t>(2, weight.dim()),
                                         weight.sizes().end());
  const Windows windows = windows_of(call, x.sizes(), kernel);
  const std::vector<std::int64_t> none(windows.rank(), 0);
  return at::convolution(padded(call, x, windows, 0), weight, std::nullopt, windows.strides, none, windows.dilations,
                         false, none, call.integer("group", 1));
}

void run_conv_integer(Call& call) {
  call.result(convolved(call, centered(call, 0, 2, 0), centered(call, 1, 3, 0)).to(at::kInt));
}

void run_qlinear_conv(Call& call) {
  Tensor sum = convolved(call, centered(call, 0, 2, 0), centered(call, 3, 5, 0));
  std::vector<std::int64_t> view(static_cast<std::size_t>(sum.dim()), 1);
  view[1] = -1;
  if (call.has(8)) sum = sum.add(call.input(8).to(at::kDouble).reshape(view));
  const Tensor w_scale = call.input(4).to(at::kDouble);
  const Tensor scale =
      call.input(1).to(at::kDouble).reshape({}).mul(w_scale.numel() == 1 ? w_scale.reshape({}) : w_scale.reshape(view));
  const Tensor scaled = sum.mul(scale).div(call.input(6).to(at::kDouble).reshape({}));
  call.result(quantized(scaled, call.input(7).to(at::kDouble).reshape({}), call.dtype(7), true));
}

}  // namespace

void populate_quantization(OperatorTable& table) {
  table.add({"QuantizeLinear", "com.microsoft::QuantizeLinear"}, run_quantize_linear);
  table.add({"DequantizeLinear", "com.microsoft::DequantizeLinear"}, run_dequantize_linear);
  table.add("DynamicQuantizeLinear", run_dynamic_quantize_linear);
  table.add("MatMulInteger", run_matmul_integer);
  table.add("QLinearMatMul", run_qlinear_matmul);
  table.add("ConvInteger", run_conv_integer);
  table.add("QLinearConv", run_qlinear_conv);
}

}  // namespace exportguard::evaluator
