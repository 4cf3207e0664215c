#include <algorithm>
#include <limits>
#include <optional>

#include "exportguard/lowering/table.h"
#include "lowering/complex_arithmetic.h"
#include "lowering/kernels.h"
#include "lowering/ranking.h"
#include "lowering/reductions.h"

namespace exportguard::lowering {
namespace {

/// Where the overloads have what the variance is taken over.
struct Options {
  std::vector<std::int64_t> axes;
  double correction = 1;
  bool keepdim = false;
};

Options options_of_all(LoweringContext& ctx) { return {{}, ctx.flag(1) ? 1.0 : 0.0, false}; }

Options options_of_dim(LoweringContext& ctx) {
  return {ctx.axes(1, ctx.rank(ctx.input(0))), ctx.flag(2) ? 1.0 : 0.0, ctx.flag(3)};
}

Options options_of_correction(LoweringContext& ctx) {
  return {ctx.axes(1, ctx.rank(ctx.input(0))), ctx.number_or(2, 1), ctx.flag(3)};
}

/// The mean of the squares, with `correction` taken off the number of elements; NaN or inf where that leaves none.
Value* corrected_mean(LoweringContext& ctx, Value* squares, const Options& options) {
  if (options.correction == 0) return mean(ctx, squares, {options.axes, options.keepdim});
  Value* sum = ctx.reduce("ReduceSum", squares, options.axes, options.keepdim);
  Value* count = reduced_count(ctx, squares, options.axes, squares->dtype());
  Value* rest = ctx.op("Sub", {count, ctx.number_like(options.correction, count)});
  return ctx.op("Div", {sum, ctx.op("Max", {rest, ctx.number_like(0, rest)})});
}

Value* variance_of(LoweringContext& ctx, Value* x, const Options& options) {
  Value* deviation = ctx.op("Sub", {x, mean(ctx, x, {options.axes, true})});
  return corrected_mean(ctx, ctx.op("Mul", {deviation, deviation}), options);
}

Value* variance(LoweringContext& ctx, const Options& options) {
  return variance_of(ctx, ctx.widened(ctx.input(0)), options);
}

/// The input of a standard deviation, which torch computes in float64 (aten/src/ATen/native/cpu/ReduceOpsKernel.cpp,
/// `std_var_kernel`): the squares of what float32 holds may be beyond its ends where their root is not.
Value* input_of_root(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  if (x->dtype() == DType::kFloat16) return ctx.widened(x);  // whose squares float32 holds
  return ctx.cast(x, DType::kFloat64);
}

Value* deviation(LoweringContext& ctx, const Options& options) {
  return ctx.op("Sqrt", {variance_of(ctx, input_of_root(ctx), options)});
}

void lower_var(LoweringContext& ctx) { ctx.result(variance(ctx, options_of_all(ctx))); }
void lower_var_dim(LoweringContext& ctx) { ctx.result(variance(ctx, options_of_dim(ctx))); }
void lower_var_correction(LoweringContext& ctx) { ctx.result(variance(ctx, options_of_correction(ctx))); }
void lower_std(LoweringContext& ctx) { ctx.result(deviation(ctx, options_of_all(ctx))); }
void lower_std_dim(LoweringContext& ctx) { ctx.result(deviation(ctx, options_of_dim(ctx))); }
void lower_std_correction(LoweringContext& ctx) { ctx.result(deviation(ctx, options_of_correction(ctx))); }

void results_with_mean(LoweringContext& ctx, const Options& options, bool takes_root) {
  Value* x = takes_root ? input_of_root(ctx) : ctx.widened(ctx.input(0));
  Value* spread = variance_of(ctx, x, options);
  ctx.results({takes_root ? ctx.op("Sqrt", {spread}) : spread, mean(ctx, x, {options.axes, options.keepdim})});
}

void lower_var_mean(LoweringContext& ctx) { results_with_mean(ctx, options_of_all(ctx), false); }
void lower_var_mean_dim(LoweringContext& ctx) { results_with_mean(ctx, options_of_dim(ctx), false); }
void lower_var_mean_correction(LoweringContext& ctx) { results_with_mean(ctx, options_of_correction(ctx), false); }
void lower_std_mean(LoweringContext& ctx) { results_with_mean(ctx, options_of_all(ctx), true); }
void lower_std_mean_dim(LoweringContext& ctx) { results_with_mean(ctx, options_of_dim(ctx), true); }
void lower_std_mean_correction(LoweringContext& ctx) { results_with_mean(ctx, options_of_correction(ctx), true); }

/// What is spread of complex numbers is what is spread of their parts, together.
void separate_variance(ComplexSite& site) {
  const auto of_part = [&](Value* part) { return site.again({part}, site.node().arguments()).front(); };
  const Parts z = site.parts(0);
  site.give_real(site.emit("add.Tensor", {of_part(z.real), of_part(z.imaginary)}, site.output_type()));
}

void separate_deviation(ComplexSite& site) {
  const auto squared = [&](Value* part) {
    Value* deviation = site.again({part}, site.node().arguments()).front();
    return product(site, deviation, deviation, site.output_type());
  };
  const Parts z = site.parts(0);
  Value* sum = site.emit("add.Tensor", {squared(z.real), squared(z.imaginary)}, site.output_type());
  site.give_real(of_part(site, "sqrt.default", sum));
}

// ------------------------------------------------------------------------------------------------ medians

struct Found {
  Value* value;
  Value* index;
};

/// The tensor with one more element along the axis: something is to be found of an empty one, too.
Value* never_empty(LoweringContext& ctx, Value* x, std::int64_t axis) {
  if (ctx.size(x, axis).constant().value_or(0) > 0) return x;
  std::vector<Size> sizes = ctx.sizes_of(x);
  sizes[static_cast<std::size_t>(axis)] = 1;
  return ctx.concat({x, ctx.filled(sizes, ctx.number_like(0, x))}, axis);
}

/// What stands at `position` (one for each result, axis kept) of the elements in ascending order.
Found at_rank(LoweringContext& ctx, Value* x, std::int64_t axis, Value* position) {
  const Ranked sorted = fully_ranked(ctx, x, {axis, false});
  return {ctx.op("GatherElements", {never_empty(ctx, sorted.values, axis), position}, {{"axis", axis}}),
          ctx.op("GatherElements", {never_empty(ctx, sorted.positions, axis), position}, {{"axis", axis}})};
}

/// The place of the lower of the two in the middle of `count` elements.
Value* half_of(LoweringContext& ctx, Value* count) {
  Value* below = ctx.op("Sub", {count, ctx.constant(1, DType::kInt64)});
  return ctx.op("Div", {ctx.op("Max", {below, ctx.constant(0, DType::kInt64)}), ctx.constant(2, DType::kInt64)});
}

/// How many elements along the axis are numbers; int64, axis kept.
Value* count_of_numbers(LoweringContext& ctx, Value* x, std::int64_t axis) {
  Value* is_number = ctx.cast(kernel_op(ctx, "Equal", {x, x}), DType::kInt64);
  return ctx.reduce("ReduceSum", is_number, {axis}, true);
}

Value* nan_where(LoweringContext& ctx, Value* condition, Value* x) {
  return ctx.where(condition, ctx.number_like(std::numeric_limits<double>::quiet_NaN(), x), x);
}

/// The median of what is not NaN; NaN where that is nothing.
Found middle_of_numbers(LoweringContext& ctx, Value* x, std::int64_t axis) {
  Value* count = count_of_numbers(ctx, x, axis);
  const Found found = at_rank(ctx, x, axis, half_of(ctx, count));
  if (!is_floating(x->dtype())) return found;
  return {nan_where(ctx, ctx.op("Equal", {count, ctx.constant(0, DType::kInt64)}), found.value), found.index};
}

/// NaN, and its first place, wherever there is one.
Found middle(LoweringContext& ctx, Value* x, std::int64_t axis) {
  const Found found = middle_of_numbers(ctx, x, axis);
  if (!is_floating(x->dtype())) return found;
  Value* is_nan = ctx.cast(kernel_op(ctx, "IsNaN", {x}), DType::kUint8);
  Value* has_nan = ctx.cast(ctx.reduce("ReduceMax", is_nan, {axis}, true), DType::kBool);
  Value* first = extreme_index(ctx, is_nan, Extreme::kLargest, axis, true);
  return {nan_where(ctx, has_nan, found.value), ctx.where(has_nan, first, found.index)};
}

using Middle = Found (*)(LoweringContext&, Value*, std::int64_t);

void lower_middle_of_all(LoweringContext& ctx, Middle find) {
  Value* found = find(ctx, ctx.reshape(ctx.input(0), {-1}), 0).value;
  ctx.result(ctx.reshape(found, {}));
}

void lower_middle_dim(LoweringContext& ctx, Middle find) {
  Value* x = ctx.input(0);
  const std::int64_t axis = ctx.axis(1, ctx.rank(x));
  if (ctx.rank(x) == 0) return ctx.results({x, ctx.constant(0, DType::kInt64)});
  const Found found = find(ctx, x, axis);
  if (ctx.flag(2)) return ctx.results({found.value, found.index});
  ctx.results({ctx.squeeze(found.value, {axis}), ctx.squeeze(found.index, {axis})});
}

void lower_median(LoweringContext& ctx) { lower_middle_of_all(ctx, middle); }
void lower_median_dim(LoweringContext& ctx) { lower_middle_dim(ctx, middle); }
void lower_nanmedian(LoweringContext& ctx) { lower_middle_of_all(ctx, middle_of_numbers); }
void lower_nanmedian_dim(LoweringContext& ctx) { lower_middle_dim(ctx, middle_of_numbers); }

}  // namespace

void populate_statistics(LoweringTable& table) {
  table.add_complex({"aten.var.default", "aten.var.dim", "aten.var.correction"}, separate_variance);
  table.add_complex({"aten.std.default", "aten.std.dim", "aten.std.correction"}, separate_deviation);
  table.add("aten.var.default", lower_var);
  table.add("aten.var.dim", lower_var_dim);
  table.add("aten.var.correction", lower_var_correction);
  table.add("aten.std.default", lower_std);
  table.add("aten.std.dim", lower_std_dim);
  table.add("aten.std.correction", lower_std_correction);
  table.add("aten.var_mean.default", lower_var_mean);
  table.add("aten.var_mean.dim", lower_var_mean_dim);
  table.add("aten.var_mean.correction", lower_var_mean_correction);
  table.add("aten.std_mean.default", lower_std_mean);
  table.add("aten.std_mean.dim", lower_std_mean_dim);
  table.add("aten.std_mean.correction", lower_std_mean_correction);
  table.add("aten.median.default", lower_median);
  table.add("aten.median.dim", lower_median_dim);
  table.add("aten.nanmedian.default", lower_nanmedian);
  table.add("aten.nanmedian.dim", lower_nanmedian_dim);
}

}  // namespace exportguard::lowering
