#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/checks.h"
#include "lowering/packed_layout.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

/// _pack_padded_sequence(input, lengths, batch_first): the list, and how many sequences have each step.
void lower_pack(LoweringContext& ctx) {
  Value* padded = ctx.flag(2) ? ctx.swap_axes(ctx.input(0), 0, 1) : ctx.input(0);
  Value* lengths = ctx.cast(ctx.input(1), DType::kInt64);
  Value* bounds = ctx.concat({ctx.dim_of(padded, 0), lengths, ctx.ints({1})}, 0);
  lengths = stops_unless(ctx, never_falls(ctx, ctx.op("Neg", {bounds})), lengths);  // sorted, and none of nothing
  Value* steps = ctx.unsqueeze(range(ctx, size_of(ctx, padded, 0)), {1});
  Value* is_element = ctx.op("Less", {steps, lengths});
  Value* batch_sizes = ctx.reduce("ReduceSum", ctx.cast(is_element, DType::kInt64), {1}, false);
  Value* longest = ctx.reduce("ReduceMax", lengths, {0}, true);
  ir::Value& told = ctx.node().output(1);  // torch's own trace has it in the dtype of the data (2.11 to 2.13)
  told.set_type(ir::Type::tensor(DType::kInt64, told.type().shape));
  ctx.results({packed(ctx, {is_element, lengths, nullptr}, padded), ctx.slice(batch_sizes, 0, 0, Size(longest))});
}

/// `count` more steps of the padding value.
Value* padding(LoweringContext& ctx, Value* padded, const Size& count) {
  std::vector<Size> sizes = ctx.sizes_of(padded);
  sizes.front() = count;
  return ctx.filled(sizes, ctx.number_like(ctx.number(3), padded));
}

/// exportguard::pad_packed_sequence(data, batch_sizes, batch_first, padding_value, total_length, batch), see
/// patches/torch/packed_sequences.py.
void lower_pad(LoweringContext& ctx) {
  Value* data = ctx.input(0);
  Value* batch_sizes = ctx.input(1);
  const PackedLayout layout = layout_of_batches(ctx, batch_sizes, Size(ctx.dim(5)));
  Value* elements = unpacked(ctx, layout, data);
  Value* is_element = ctx.unsqueeze(layout.is_element, counted(ctx.rank(data) - 1, 2));
  Value* padded = ctx.where(is_element, elements, ctx.number_like(ctx.number(3), data));
  ir::Shape shape = ctx.output_type().shape.value();
  if (ctx.flag(2)) std::swap(shape[0], shape[1]);
  shape[0] = padded->type().shape.value()[0];  // as long as the longest, not yet as `total_length`
  padded->set_type(ir::Type::tensor(data->dtype(), shape));
  const Size missing = subtract(ctx, Size(ctx.dim(4)), Size(ctx.op("Shape", {batch_sizes})));
  padded = ctx.concat({padded, padding(ctx, padded, missing)}, 0);
  ctx.results({ctx.flag(2) ? ctx.swap_axes(padded, 0, 1) : padded, layout.lengths});
}

}  // namespace

void populate_packed_sequences(LoweringTable& table) {
  table.add("aten._pack_padded_sequence.default", lower_pack);
  table.add("exportguard.pad_packed_sequence.default", lower_pad);
}

}  // namespace exportguard::lowering
