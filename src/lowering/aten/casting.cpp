#include <limits>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/complex_rules.h"
#include "lowering/kernels.h"

namespace exportguard::lowering {
namespace {

void lower_same(LoweringContext& ctx) { ctx.result(ctx.input(0)); }

/// What float8_e5m2 does not hold is infinite, as in torch: ONNX takes the largest number unless told not to, and
/// a target may make NaN of what is rounded up to infinity.
Value* to_float8_e5m2(LoweringContext& ctx, Value* x) {
  constexpr double kFirstInfinite = 61440;  // halfway from the largest number to the next power of two
  Value* is_infinite =
      kernel_op(ctx, "GreaterOrEqual", {same_dtype_op(ctx, "Abs", {x}), ctx.number_like(kFirstInfinite, x)});
  Value* infinity = ctx.number_like(std::numeric_limits<double>::infinity(), x);
  Value* whole = ctx.where(is_infinite, same_dtype_op(ctx, "Mul", {x, infinity}), x);
  return ctx.op("Cast", {whole}, {{"to", static_cast<std::int64_t>(DType::kFloat8E5M2)}, {"saturate", 0}});
}

/// Integers of fewer bits are the lowest bits of an int64, also of one that was a float: what a target would merge into
/// one cast is kept apart by what leaves all bits as they are.
Value* apart_from_a_cast(LoweringContext& ctx, Value* x, DType to) {
  const ir::Node* before = x->producer();
  const bool is_of_float = before != nullptr && before->is("", "Cast") && is_floating(before->input(0).dtype());
  const bool is_narrowed = x->dtype() == DType::kInt64 && (to == DType::kInt32 || to == DType::kInt16);
  if (!is_of_float || !is_narrowed || !departs(ctx, Departure::kMergedCasts)) return x;
  return ctx.op("BitwiseAnd", {x, ctx.constant(-1, DType::kInt64)});
}

/// Of a tensor; of a number, which takes the place of one where torch takes a vmap apart.
void lower_cast(LoweringContext& ctx) {
  const DType to = ctx.output_dtype();
  Value* x = ctx.is_value(0) ? ctx.input(0) : ctx.scalar(0, to);
  const bool is_narrowed = to == DType::kFloat8E5M2 && is_floating(x->dtype()) && x->dtype() != to;
  ctx.result(is_narrowed ? to_float8_e5m2(ctx, x) : ctx.cast(apart_from_a_cast(ctx, x, to), to));
}

}  // namespace

void populate_casting(LoweringTable& table) {
  table.add({"aten.to.device", "aten.to.dtype", "aten.to.other", "aten.to.dtype_layout", "aten.to.prim_Device",
             "aten.to.prim_dtype", "aten.to.prim_other", "aten._to_copy.default", "aten.type_as.default",
             "aten._autocast_to_reduced_precision.default", "aten._autocast_to_full_precision.default",
             "prims.convert_element_type.default"},
            lower_cast);
  table.add({"aten.contiguous.default", "aten.clone.default", "aten.alias.default", "aten.alias_copy.default",
             "aten.detach.default", "aten.detach_copy.default", "aten.lift.default", "aten.lift_fresh.default",
             "aten.lift_fresh_copy.default", "aten.resolve_conj.default", "aten.resolve_neg.default",
             "aten._lazy_clone.default", "prims.device_put.default", "prims.clone.default", "aten.pin_memory.default"},
            lower_same);
  table.add_complex({"aten.clone.default", "aten.contiguous.default", "aten.alias.default", "aten.detach.default",
                     "aten.lift_fresh_copy.default", "aten.resolve_neg.default"},
                    separate_each);
  table.add_complex({"aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout", "aten.to.device",
                     "prims.convert_element_type.default", "aten.resolve_conj.default"},
                    separate_cast);
}

}  // namespace exportguard::lowering
