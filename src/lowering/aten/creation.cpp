#include <algorithm>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/complex_rules.h"
#include "lowering/kernels.h"
#include "lowering/sums_of_sizes.h"

namespace exportguard::lowering {
namespace {

Value* output_number(LoweringContext& ctx, int number) { return ctx.constant(number, ctx.output_dtype()); }

void lower_full(LoweringContext& ctx) { ctx.result(ctx.filled(ctx.sizes(0), ctx.scalar(1, ctx.output_dtype()))); }
void lower_zeros(LoweringContext& ctx) { ctx.result(ctx.filled(ctx.sizes(0), output_number(ctx, 0))); }
void lower_ones(LoweringContext& ctx) { ctx.result(ctx.filled(ctx.sizes(0), output_number(ctx, 1))); }

void lower_new_full(LoweringContext& ctx) { ctx.result(ctx.filled(ctx.sizes(1), ctx.scalar(2, ctx.output_dtype()))); }
void lower_new_zeros(LoweringContext& ctx) { ctx.result(ctx.filled(ctx.sizes(1), output_number(ctx, 0))); }
void lower_new_ones(LoweringContext& ctx) { ctx.result(ctx.filled(ctx.sizes(1), output_number(ctx, 1))); }

Value* filled_like_input(LoweringContext& ctx, Value* scalar) { return ctx.filled(ctx.sizes_of(ctx.input(0)), scalar); }

void lower_zeros_like(LoweringContext& ctx) { ctx.result(filled_like_input(ctx, output_number(ctx, 0))); }
void lower_ones_like(LoweringContext& ctx) { ctx.result(filled_like_input(ctx, output_number(ctx, 1))); }

void lower_full_like(LoweringContext& ctx) {
  Value* fill = ctx.scalar(1, ctx.output_dtype());
  ctx.result(filled_like_input(ctx, ctx.rank(fill) == 0 ? fill : ctx.reshape(fill, {})));
}

void lower_scalar_tensor(LoweringContext& ctx) { ctx.result(ctx.scalar(0, ctx.output_dtype())); }

/// A range of whole numbers is computed in int64, others in float64, so that the number of elements is torch's: it
/// rounds the bounds of an int64 range to zero before it counts, those of the narrower integers behind.
DType range_dtype(LoweringContext& ctx, std::size_t count) {
  if (ctx.output_dtype() == DType::kInt64) return DType::kInt64;
  for (std::size_t i = 0; i < count; ++i) {
    const DType dtype = ctx.promoted({i});
    if (is_floating(dtype)) return DType::kFloat64;
  }
  return DType::kInt64;
}

/// What a range is made of, in the dtype that its length is computed in.
struct Bounds {
  Value* start;
  Value* end;
  Value* step;
};

Bounds range_bounds(LoweringContext& ctx, std::size_t count, DType dtype) {
  return {count == 1 ? ctx.constant(0, dtype) : ctx.scalar(0, dtype), ctx.scalar(count == 1 ? 0 : 1, dtype),
          count == 3 ? ctx.scalar(2, dtype) : ctx.constant(1, dtype)};
}

/// As many integers as the floats make steps, from the start rounded to zero on, by the step rounded to zero.
Value* integers_by_floats(LoweringContext& ctx, const Bounds& bounds) {
  Value* steps = ctx.op("Div", {ctx.op("Sub", {bounds.end, bounds.start}), bounds.step});
  Value* length = ctx.cast(ctx.op("Ceil", {steps}), DType::kInt64);
  Value* index = ctx.op("Range", {ctx.constant(0, DType::kInt64), length, ctx.constant(1, DType::kInt64)});
  Value* scaled = ctx.op("Mul", {index, ctx.cast(bounds.step, DType::kInt64)});
  return ctx.op("Add", {scaled, ctx.cast(bounds.start, DType::kInt64)});
}

/// Whether an integer is known not to be below 0: a number, or a sum of sizes of the inputs.
bool is_not_negative(LoweringContext& ctx, const Value* value) {
  const ir::Elements* elements = ctx.find_elements(value);
  return elements && std::ranges::all_of(*elements, is_sum_of_input_sizes);
}

/// Where a target takes a Gather of a Range for a Slice, indices below 0 count from the end twice: a range that may
/// come there, as one that counts down to -1, is written as the negative of another one.
Value* integer_range(LoweringContext& ctx, const Bounds& bounds) {
  const bool is_plain = is_not_negative(ctx, bounds.start) && is_not_negative(ctx, bounds.step);
  const bool is_signed = bounds.start->dtype() == DType::kInt64 || bounds.start->dtype() == DType::kInt32;
  if (is_plain || !is_signed || !departs(ctx, Departure::kGatherOfRange)) {
    return ctx.op("Range", {bounds.start, bounds.end, bounds.step});
  }
  const auto negated = [&](Value* value) { return ctx.op("Neg", {value}); };
  return negated(ctx.op("Range", {negated(bounds.start), negated(bounds.end), negated(bounds.step)}));
}

/// torch.arange over the first `count` arguments: end; start and end; start, end and step.
void lower_range(LoweringContext& ctx, std::size_t count) {
  const DType dtype = range_dtype(ctx, count);
  const Bounds bounds = range_bounds(ctx, count, dtype);
  const bool is_cut = is_floating(dtype) && !is_floating(ctx.output_dtype());
  ctx.result(is_cut ? integers_by_floats(ctx, bounds) : integer_range(ctx, bounds));
}

void lower_arange(LoweringContext& ctx) { lower_range(ctx, 1); }
void lower_arange_start(LoweringContext& ctx) { lower_range(ctx, 2); }
void lower_arange_start_step(LoweringContext& ctx) { lower_range(ctx, 3); }

Value* range_to(LoweringContext& ctx, Value* count) {
  return ctx.op("Range", {ctx.constant(0, DType::kInt64), count, ctx.constant(1, DType::kInt64)});
}

/// Evenly spaced float64 from argument 0 to argument 1, `steps` (argument 2) of them; the second half is counted from
/// the end, so that the last is the end itself.
Value* evenly_spaced(LoweringContext& ctx) {
  constexpr DType kWide = DType::kFloat64;
  Value* start = ctx.reshape(ctx.scalar(0, kWide), {});
  Value* end = ctx.reshape(ctx.scalar(1, kWide), {});
  Value* steps = ctx.scalar(2, DType::kInt64);
  Value* index = range_to(ctx, steps);
  Value* last = ctx.op("Sub", {steps, ctx.constant(1, DType::kInt64)});
  Value* intervals = ctx.op("Max", {last, ctx.constant(1, DType::kInt64)});
  Value* step = ctx.op("Div", {ctx.op("Sub", {end, start}), ctx.cast(intervals, kWide)});
  const auto travelled = [&](Value* count) { return ctx.op("Mul", {ctx.cast(count, kWide), step}); };
  Value* from_start = ctx.op("Add", {start, travelled(index)});
  Value* from_end = ctx.op("Sub", {end, travelled(ctx.op("Sub", {last, index}))});
  Value* halfway =
      ctx.op("Max", {ctx.op("Div", {steps, ctx.constant(2, DType::kInt64)}), ctx.constant(1, DType::kInt64)});
  return ctx.where(ctx.op("Less", {index, halfway}), from_start, from_end);
}

void lower_linspace(LoweringContext& ctx) { ctx.result(evenly_spaced(ctx)); }

void lower_logspace(LoweringContext& ctx) {
  Value* exponents = evenly_spaced(ctx);
  ctx.result(ctx.op("Pow", {ctx.scalar(3, DType::kFloat64), exponents}));
}

/// EyeLike has few kernels and none of them takes a size that is known at run time alone.
Value* identity(LoweringContext& ctx, std::size_t rows, std::size_t columns) {
  Value* row = ctx.unsqueeze(range_to(ctx, ctx.scalar(rows, DType::kInt64)), {1});
  return ctx.op("Equal", {row, range_to(ctx, ctx.scalar(columns, DType::kInt64))});
}

void lower_eye(LoweringContext& ctx) { ctx.result(identity(ctx, 0, 0)); }
void lower_eye_m(LoweringContext& ctx) { ctx.result(identity(ctx, 0, 1)); }

enum class Triangle { kLower, kUpper };

/// Row numbers, then column numbers, of the elements of a triangle.
void lower_triangle_indices(LoweringContext& ctx, Triangle triangle) {
  const std::int64_t rows = ctx.integer(0);
  const std::int64_t columns = ctx.integer(1);
  const std::int64_t offset = ctx.integer(2);
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> second;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const bool is_in = triangle == Triangle::kLower ? column <= row + offset : column >= row + offset;
      if (!is_in) continue;
      first.push_back(row);
      second.push_back(column);
    }
  }
  const auto count = static_cast<std::int64_t>(first.size());
  first.insert(first.end(), second.begin(), second.end());
  ctx.result(ctx.reshape(ctx.ints(first), {2, count}));
}

void lower_tril_indices(LoweringContext& ctx) { lower_triangle_indices(ctx, Triangle::kLower); }
void lower_triu_indices(LoweringContext& ctx) { lower_triangle_indices(ctx, Triangle::kUpper); }

}  // namespace

void populate_creation(LoweringTable& table) {
  table.add("aten.full.default", lower_full);
  // The content of `empty` is anything; zeros make a model repeatable.
  table.add(
      {"aten.zeros.default", "aten.empty.memory_format", "aten.empty_strided.default", "aten.empty_permuted.default"},
      lower_zeros);
  table.add("aten.ones.default", lower_ones);
  table.add("aten.new_full.default", lower_new_full);
  table.add({"aten.new_zeros.default", "aten.new_empty.default", "aten.new_empty_strided.default"}, lower_new_zeros);
  table.add("aten.new_ones.default", lower_new_ones);
  table.add({"aten.zeros_like.default", "aten.empty_like.default", "aten.zero.default"}, lower_zeros_like);
  table.add("aten.ones_like.default", lower_ones_like);
  table.add({"aten.full_like.default", "aten.fill.Scalar", "aten.fill.Tensor"}, lower_full_like);
  table.add("aten.scalar_tensor.default", lower_scalar_tensor);

  table.add("aten.arange.default", lower_arange);
  table.add("aten.arange.start", lower_arange_start);
  table.add("aten.arange.start_step", lower_arange_start_step);
  table.add({"aten.linspace.default", "aten.linspace.Tensor_Tensor", "aten.linspace.Tensor_Scalar",
             "aten.linspace.Scalar_Tensor"},
            lower_linspace);
  table.add({"aten.logspace.default", "aten.logspace.Tensor_Tensor", "aten.logspace.Tensor_Scalar",
             "aten.logspace.Scalar_Tensor"},
            lower_logspace);

  table.add("aten.eye.default", lower_eye);
  table.add("aten.eye.m", lower_eye_m);
  table.add("aten.tril_indices.default", lower_tril_indices);
  table.add("aten.triu_indices.default", lower_triu_indices);

  table.add_complex({"aten.zeros_like.default"}, separate_each);
  table.add_complex({"aten.full.default", "aten.full_like.default", "aten.ones.default", "aten.ones_like.default",
                     "aten.zeros.default", "aten.new_full.default", "aten.new_ones.default", "aten.new_zeros.default",
                     "aten.scalar_tensor.default", "aten.eye.default", "aten.eye.m", "aten.empty.memory_format",
                     "aten.empty_like.default"},
                    separate_creation);
}

}  // namespace exportguard::lowering
