#include "lowering/packed_layout.h"

#include "lowering/axes.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {

PackedLayout layout_of_batches(LoweringContext& ctx, Value* batch_sizes, const Size& batch) {
  Value* sizes = ctx.unsqueeze(batch_sizes, {1});
  Value* numbers = range(ctx, batch);
  Value* is_element = ctx.op("Less", {numbers, sizes});
  Value* starts = ctx.op("CumSum", {batch_sizes, ctx.constant(0, DType::kInt64)}, {{"exclusive", 1}});
  Value* places = ctx.op("Add", {ctx.unsqueeze(starts, {1}), numbers});
  return {is_element, ctx.reduce("ReduceSum", ctx.cast(is_element, DType::kInt64), {0}, false),
          ctx.where(is_element, places, ctx.constant(0, DType::kInt64))};
}

Value* unpacked(LoweringContext& ctx, const PackedLayout& layout, Value* data) {
  return ctx.gather(data, layout.positions, 0);
}

Value* packed(LoweringContext& ctx, const PackedLayout& layout, Value* padded) {
  std::vector<Size> sizes = ctx.sizes_of(padded);
  sizes.erase(sizes.begin());
  sizes.front() = -1;
  Value* is_element = ctx.reshape(layout.is_element, {Size(-1)});
  return ctx.op("Compress", {ctx.reshape(padded, sizes), is_element}, {{"axis", 0}});
}

}  // namespace exportguard::lowering
