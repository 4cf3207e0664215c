#include "exportguard/lowering/table.h"
#include "lowering/complex_rules.h"
#include "lowering/kernels.h"
#include "lowering/reductions.h"

namespace exportguard::lowering {
namespace {

/// The axes of argument `axes` of argument 0, and the flag behind it.
ReducedAxes reduced_axes(LoweringContext& ctx, std::size_t axes) {
  return {ctx.axes(axes, ctx.rank(ctx.input(0))), ctx.flag(axes + 1)};
}

ReducedAxes all_axes() { return {}; }

Value* as_output(LoweringContext& ctx) { return ctx.cast(ctx.input(0), ctx.output_dtype()); }

void lower_sum(LoweringContext& ctx) { ctx.result(sum(ctx, as_output(ctx), all_axes())); }
void lower_sum_dim(LoweringContext& ctx) { ctx.result(sum(ctx, as_output(ctx), reduced_axes(ctx, 1))); }
void lower_prod(LoweringContext& ctx) { ctx.result(product(ctx, as_output(ctx), all_axes())); }
void lower_prod_dim(LoweringContext& ctx) { ctx.result(product(ctx, as_output(ctx), reduced_axes(ctx, 1))); }
void lower_mean(LoweringContext& ctx) { ctx.result(mean(ctx, as_output(ctx), all_axes())); }
void lower_mean_dim(LoweringContext& ctx) { ctx.result(mean(ctx, as_output(ctx), reduced_axes(ctx, 1))); }

/// For `any` and `all` alone torch takes an empty list for no axis, and None for all of them.
bool goes_over_no_axis(LoweringContext& ctx) { return ctx.has(1) && ctx.integers(1).empty(); }

void lower_any(LoweringContext& ctx) { ctx.result(any_true(ctx, ctx.input(0), all_axes())); }
void lower_any_dim(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  ctx.result(goes_over_no_axis(ctx) ? as_bool(ctx, x) : any_true(ctx, x, reduced_axes(ctx, 1)));
}
void lower_all(LoweringContext& ctx) { ctx.result(all_true(ctx, ctx.input(0), all_axes())); }
void lower_all_dim(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  ctx.result(goes_over_no_axis(ctx) ? as_bool(ctx, x) : all_true(ctx, x, reduced_axes(ctx, 1)));
}

Value* nonzero_count(LoweringContext& ctx, const std::vector<std::int64_t>& axes) {
  Value* flags = ctx.cast(ctx.cast(ctx.input(0), DType::kBool), DType::kInt64);
  return ctx.reduce("ReduceSum", flags, axes, false);
}

void lower_count_nonzero(LoweringContext& ctx) { ctx.result(nonzero_count(ctx, ctx.axes(1, ctx.rank(ctx.input(0))))); }

// ------------------------------------------------------------------------------------------------ extremes

void lower_amax(LoweringContext& ctx) {
  ctx.result(extreme_value(ctx, ctx.input(0), Extreme::kLargest, reduced_axes(ctx, 1)));
}

void lower_amin(LoweringContext& ctx) {
  ctx.result(extreme_value(ctx, ctx.input(0), Extreme::kSmallest, reduced_axes(ctx, 1)));
}

void lower_max(LoweringContext& ctx) { ctx.result(extreme_value(ctx, ctx.input(0), Extreme::kLargest, all_axes())); }

void lower_min(LoweringContext& ctx) { ctx.result(extreme_value(ctx, ctx.input(0), Extreme::kSmallest, all_axes())); }

void lower_aminmax(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const ReducedAxes over = reduced_axes(ctx, 1);
  ctx.results({extreme_value(ctx, x, Extreme::kSmallest, over), extreme_value(ctx, x, Extreme::kLargest, over)});
}

/// Values and indices along one axis; the values are read at the indices, so that they agree.
void lower_extreme_dim(LoweringContext& ctx, Extreme extreme) {
  Value* x = ctx.input(0);
  const std::int64_t axis = ctx.axis(1, ctx.rank(x));
  const bool keepdim = ctx.flag(2);
  if (ctx.rank(x) == 0) return ctx.results({x, extreme_index(ctx, x, extreme, axis, keepdim)});
  const bool is_value_alone = ctx.node().output(1).is_unused();
  if (is_value_alone) return ctx.results({extreme_value(ctx, x, extreme, {{axis}, keepdim}), nullptr});
  Value* index = extreme_index(ctx, x, extreme, axis, true);
  Value* value = ctx.op("GatherElements", {x, index}, {{"axis", axis}});
  if (keepdim) return ctx.results({value, index});
  ctx.results({ctx.squeeze(value, {axis}), ctx.squeeze(index, {axis})});
}

void lower_max_dim(LoweringContext& ctx) { lower_extreme_dim(ctx, Extreme::kLargest); }
void lower_min_dim(LoweringContext& ctx) { lower_extreme_dim(ctx, Extreme::kSmallest); }

void lower_extreme_index(LoweringContext& ctx, Extreme extreme) {
  Value* x = ctx.input(0);
  if (ctx.has(1)) return ctx.result(extreme_index(ctx, x, extreme, ctx.axis(1, ctx.rank(x)), ctx.flag(2)));
  Value* index = extreme_index(ctx, ctx.reshape(x, {-1}), extreme, 0, false);
  ctx.result(ctx.flag(2) ? ctx.reshape(index, std::vector<Size>(ctx.rank(x), 1)) : index);
}

void lower_argmax(LoweringContext& ctx) { lower_extreme_index(ctx, Extreme::kLargest); }
void lower_argmin(LoweringContext& ctx) { lower_extreme_index(ctx, Extreme::kSmallest); }

// ------------------------------------------------------------------------------------------------ without NaN

Value* zero_for_nan(LoweringContext& ctx, Value* x) {
  if (!is_floating(x->dtype())) return x;
  return ctx.where(kernel_op(ctx, "IsNaN", {x}), ctx.number_like(0, x), x);
}

void lower_nansum(LoweringContext& ctx) {
  const ReducedAxes over = reduced_axes(ctx, 1);
  ctx.result(sum(ctx, zero_for_nan(ctx, as_output(ctx)), over));
}

void lower_nanmean(LoweringContext& ctx) {
  const ReducedAxes over = reduced_axes(ctx, 1);
  Value* x = as_output(ctx);
  Value* sum = ctx.reduce("ReduceSum", zero_for_nan(ctx, x), over.axes, over.keepdim);
  Value* is_number = ctx.cast(ctx.op("Not", {kernel_op(ctx, "IsNaN", {x})}), DType::kInt64);
  Value* count = ctx.reduce("ReduceSum", is_number, over.axes, over.keepdim);
  ctx.result(ctx.op("Div", {sum, ctx.cast(count, sum->dtype())}));
}

}  // namespace

void populate_reduction(LoweringTable& table) {
  table.add("aten.sum.default", lower_sum);
  table.add("aten.sum.dim_IntList", lower_sum_dim);
  table.add("aten.prod.default", lower_prod);
  table.add("aten.prod.dim_int", lower_prod_dim);
  table.add("aten.mean.default", lower_mean);
  table.add("aten.mean.dim", lower_mean_dim);
  table.add({"aten.any.default", "aten._is_any_true.default"}, lower_any);
  table.add({"aten.any.dim", "aten.any.dims"}, lower_any_dim);
  table.add({"aten.all.default", "aten._is_all_true.default"}, lower_all);
  table.add({"aten.all.dim", "aten.all.dims"}, lower_all_dim);
  table.add({"aten.count_nonzero.default", "aten.count_nonzero.dim_IntList"}, lower_count_nonzero);

  table.add("aten.amax.default", lower_amax);
  table.add("aten.amin.default", lower_amin);
  table.add("aten.max.default", lower_max);
  table.add("aten.min.default", lower_min);
  table.add("aten.aminmax.default", lower_aminmax);
  table.add("aten.max.dim", lower_max_dim);
  table.add("aten.min.dim", lower_min_dim);
  table.add("aten.argmax.default", lower_argmax);
  table.add("aten.argmin.default", lower_argmin);
  table.add("aten.nansum.default", lower_nansum);
  table.add("aten.nanmean.default", lower_nanmean);

  table.add_complex({"aten.sum.default", "aten.sum.dim_IntList", "aten.mean.default", "aten.mean.dim"}, separate_each);
  table.add_complex({"aten.any.default", "aten.any.dim", "aten.any.dims", "aten.all.default", "aten.all.dim",
                     "aten.all.dims", "aten.count_nonzero.default", "aten.count_nonzero.dim_IntList"},
                    separate_truth);
}

}  // namespace exportguard::lowering
