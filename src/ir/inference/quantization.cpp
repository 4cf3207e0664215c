#include <fmt/format.h>

#include "exportguard/ir/inference.h"

namespace exportguard::ir {
namespace {

/// The zero point tells the dtype, else the attribute (opset 21), else it is uint8.
void infer_quantize(InferenceContext& ctx) {
  const DType fallback = ctx.dtype_attribute("output_dtype", DType::kUndefined);
  const DType dtype = ctx.has(2) ? ctx.dtype(2) : fallback == DType::kUndefined ? DType::kUint8 : fallback;
  ctx.set(0, dtype, ctx.shape(0));
}

/// In the scale's dtype, unless the attribute (opset 23) says another.
void infer_dequantize(InferenceContext& ctx) {
  const DType given = ctx.dtype_attribute("output_dtype", DType::kUndefined);
  ctx.set(0, given == DType::kUndefined ? ctx.dtype(1) : given, ctx.shape(0));
}

void infer_dynamic_quantize(InferenceContext& ctx) {
  ctx.set(0, DType::kUint8, ctx.shape(0));
  ctx.set(1, DType::kFloat32, Shape{});
  ctx.set(2, DType::kUint8, Shape{});
}

/// onnxruntime's product with a packed weight of `N` columns.
void infer_packed_matmul(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  const std::int64_t columns = ctx.integer("N", 0);
  if (columns < 1) ctx.fail(fmt::format("attribute N must be at least 1, got {}", columns));
  if (shape && !shape->empty()) shape->back() = columns;
  ctx.set(0, ctx.dtype(0), std::move(shape));
}

}  // namespace

void populate_quantization(InferenceTable& table) {
  table.add({"QuantizeLinear"}, infer_quantize);
  table.add({"DequantizeLinear"}, infer_dequantize);
  table.add({"DynamicQuantizeLinear"}, infer_dynamic_quantize);
  table.add_in("com.microsoft", {"MatMulNBits"}, infer_packed_matmul);
}

}  // namespace exportguard::ir
