#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/complex_rules.h"
#include "lowering/scatter.h"
#include "lowering/size_arithmetic.h"
#include "lowering/vectors.h"

// as_strided addresses the memory of a tensor. ONNX tensors have none, so that it is read as positions in the flattened
// tensor, which is the same for a tensor that lies in memory in the order of its elements. Whoever reads a program
// refuses the others by the strides that torch gives them, which a graph of values does not have.

namespace exportguard::lowering {
namespace {

/// int64 of the shape asked for: the position of each element in the memory.
Value* memory_positions(LoweringContext& ctx, std::size_t first) {
  const std::vector<Size> sizes = ctx.sizes(first);
  const std::vector<Size> strides = ctx.sizes(first + 1);
  const Size offset = ctx.has(first + 2) ? ctx.sizes(first + 2).front() : Size(0);
  Value* positions = as_scalar(ctx, offset);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Value* steps = ctx.op("Mul", {range(ctx, sizes[i]), as_dim(ctx, strides.at(i))});
    std::vector<std::int64_t> behind;
    for (std::size_t axis = i + 1; axis < sizes.size(); ++axis) behind.push_back(static_cast<std::int64_t>(axis - i));
    positions = ctx.op("Add", {positions, ctx.unsqueeze(steps, behind)});
  }
  return positions;
}

void lower_as_strided(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  ctx.result(ctx.gather(flattened(ctx, x), memory_positions(ctx, 1), 0));
}

void lower_as_strided_scatter(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  Value* positions = flattened(ctx, memory_positions(ctx, 2));
  Value* written =
      scatter_elements(ctx, flattened(ctx, x), 0, positions, flattened(ctx, ctx.input(1)), Reduction::kNone);
  ctx.result(ctx.reshape(written, ctx.sizes_of(x)));
}

}  // namespace

void populate_strided(LoweringTable& table) {
  table.add({"aten.as_strided.default", "aten.as_strided_copy.default"}, lower_as_strided);
  table.add("aten.as_strided_scatter.default", lower_as_strided_scatter);
  table.add_complex({"aten.as_strided.default"}, separate_each);
}

}  // namespace exportguard::lowering
