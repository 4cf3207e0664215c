#include <algorithm>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/complex_rules.h"
#include "lowering/kernels.h"
#include "lowering/reductions.h"
#include "lowering/size_arithmetic.h"
#include "lowering/vectors.h"

namespace exportguard::lowering {
namespace {

void lower_triangle(LoweringContext& ctx, std::int64_t upper) {
  Value* x = ctx.input(0);
  std::vector<Value*> operands = {ctx.cast(x, kernel_dtype(ctx, "Trilu", x->dtype()))};
  if (ctx.find_integer(1) != 0) operands.push_back(ctx.scalar(1, DType::kInt64));
  ctx.result(ctx.op("Trilu", operands, {{"upper", upper}}));
}

void lower_tril(LoweringContext& ctx) { lower_triangle(ctx, 0); }

void lower_triu(LoweringContext& ctx) { lower_triangle(ctx, 1); }

// ------------------------------------------------------------------------------------------------ diagonals out of
// matrices

/// Two axes of a tensor and the diagonal of the matrices that they span.
struct Diagonal {
  std::int64_t offset;
  std::int64_t rows;
  std::int64_t columns;
};

/// From the arguments offset, dim1 and dim2, which begin at position `first`.
Diagonal diagonal_argument(LoweringContext& ctx, std::size_t first, std::size_t rank) {
  return {ctx.integer(first), ctx.axis(first + 1, rank), ctx.axis(first + 2, rank)};
}

/// The permutation that puts rows and columns last.
std::vector<std::int64_t> matrices_last(const Diagonal& d, std::size_t rank) {
  std::vector<std::int64_t> permutation;
  for (std::int64_t axis = 0; axis < static_cast<std::int64_t>(rank); ++axis) {
    if (axis != d.rows && axis != d.columns) permutation.push_back(axis);
  }
  permutation.push_back(d.rows);
  permutation.push_back(d.columns);
  return permutation;
}

/// A tensor with its matrices flattened along the last axis, and where their diagonals stand in it.
struct FlatMatrices {
  Value* flat;
  Value* positions;  ///< int64[length of the diagonal]
};

FlatMatrices flat_matrices(LoweringContext& ctx, Value* x, const Diagonal& d, const Size& length) {
  const std::size_t rank = ctx.rank(x);
  Value* moved = ctx.transpose(x, matrices_last(d, rank));
  const Size columns = size_of(ctx, x, d.columns);
  const Size all = multiply(ctx, size_of(ctx, x, d.rows), columns);
  Value* flat = ctx.reshape(moved, with_merged(ctx.sizes_of(moved), rank - 2, rank, all));
  const Size first = d.offset >= 0 ? Size(d.offset) : multiply(ctx, columns, -d.offset);
  Value* steps = ctx.op("Mul", {range(ctx, length), as_dim(ctx, add(ctx, columns, 1))});
  return {flat, ctx.op("Add", {steps, as_dim(ctx, first)})};
}

void lower_diagonal(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const Size length = ctx.output_sizes().back();
  const FlatMatrices m = flat_matrices(ctx, x, diagonal_argument(ctx, 1, ctx.rank(x)), length);
  ctx.result(ctx.gather(m.flat, m.positions, -1));
}

/// The smaller size of a matrix.
Size main_diagonal_length(LoweringContext& ctx, Value* matrix) {
  const Size rows = size_of(ctx, matrix, 0);
  const Size columns = size_of(ctx, matrix, 1);
  if (rows.number() && columns.number()) return std::min(*rows.number(), *columns.number());
  return Size(ctx.op("Min", {as_dim(ctx, rows), as_dim(ctx, columns)}));
}

void lower_trace(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const FlatMatrices m = flat_matrices(ctx, x, {0, 0, 1}, main_diagonal_length(ctx, x));
  Value* elements = ctx.cast(ctx.gather(m.flat, m.positions, -1), ctx.output_dtype());
  ctx.result(sum(ctx, elements, {{0}, false}));
}

void lower_diagonal_scatter(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  Value* source = ctx.cast(ctx.input(1), x->dtype());
  const std::size_t rank = ctx.rank(x);
  const Diagonal d = diagonal_argument(ctx, 2, rank);
  const FlatMatrices m = flat_matrices(ctx, x, d, size_of(ctx, source, -1));
  Value* index = ctx.expand(m.positions, ctx.sizes_of(source));
  Value* written = ctx.op("ScatterElements", {m.flat, index, source}, {{"axis", -1}});
  const std::vector<std::int64_t> permutation = matrices_last(d, rank);
  std::vector<Size> sizes;
  for (const std::int64_t axis : permutation) sizes.push_back(size_of(ctx, x, axis));
  ctx.result(ctx.transpose(ctx.reshape(written, sizes), inverse(permutation)));
}

// ------------------------------------------------------------------------------------------------ matrices of
// diagonals

/// Matrices in the last two axes with the elements of x's last axis on that diagonal, zero elsewhere.
Value* embedded(LoweringContext& ctx, Value* x, std::int64_t offset) {
  const auto rank = static_cast<std::int64_t>(ctx.rank(x));
  const std::int64_t shift = std::abs(offset);
  const Size side = add(ctx, size_of(ctx, x, -1), shift);
  std::vector<Size> missing = ctx.sizes_of(x);
  missing.back() = Size(shift);
  // One element for each row: above the main diagonal the first rows have one, below it the last.
  Value* zero = ctx.constant(0, x->dtype());
  Value* gap = shift == 0 ? nullptr : ctx.filled(missing, zero);
  Value* by_row = x;
  if (gap != nullptr) by_row = offset > 0 ? ctx.concat({x, gap}, rank - 1) : ctx.concat({gap, x}, rank - 1);
  Value* numbers = range(ctx, side);
  Value* column_of_row = ctx.op("Add", {ctx.unsqueeze(numbers, {1}), ctx.ints({offset})});
  return ctx.where(ctx.op("Equal", {numbers, column_of_row}), ctx.unsqueeze(by_row, {rank}), zero);
}

void lower_diag_embed(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const std::size_t rank = ctx.rank(x) + 1;
  const Diagonal d = diagonal_argument(ctx, 1, rank);
  ctx.result(ctx.transpose(embedded(ctx, x, d.offset), inverse(matrices_last(d, rank))));
}

void lower_diag(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  if (ctx.rank(x) == 1) return ctx.result(embedded(ctx, x, ctx.integer(1)));
  const FlatMatrices m = flat_matrices(ctx, x, {ctx.integer(1), 0, 1}, ctx.output_sizes().back());
  ctx.result(ctx.gather(m.flat, m.positions, -1));
}

void lower_diagflat(LoweringContext& ctx) {
  ctx.result(embedded(ctx, ctx.reshape(ctx.input(0), {Size(-1)}), ctx.integer(1)));
}

// ------------------------------------------------------------------------------------------------ classes

/// One more than the greatest class; the list may be empty.
Value* class_count(LoweringContext& ctx, Value* classes) {
  Value* all = ctx.concat({ctx.reshape(classes, {Size(-1)}), ctx.ints({-1})}, 0);
  return ctx.op("Add", {ctx.reduce("ReduceMax", all, {0}, false), ctx.constant(1, DType::kInt64)});
}

void lower_one_hot(LoweringContext& ctx) {
  Value* classes = ctx.cast(ctx.input(0), DType::kInt64);
  const bool is_open = ctx.find_integer(1) == -1;
  Value* count = is_open ? class_count(ctx, classes) : ctx.scalar(1, DType::kInt64);
  Value* hot = ctx.op("OneHot", {as_vector(ctx, classes), count, ctx.ints({0, 1})}, {{"axis", -1}});
  ctx.result(ctx.rank(classes) == 0 ? ctx.squeeze(hot, {0}) : hot);
}

}  // namespace

void populate_triangular(LoweringTable& table) {
  table.add("aten.tril.default", lower_tril);
  table.add("aten.triu.default", lower_triu);
  table.add({"aten.diagonal.default", "aten.diagonal_copy.default", "aten.linalg_diagonal.default"}, lower_diagonal);
  table.add("aten.trace.default", lower_trace);
  table.add("aten.diagonal_scatter.default", lower_diagonal_scatter);
  table.add("aten.diag_embed.default", lower_diag_embed);
  table.add("aten.diag.default", lower_diag);
  table.add("aten.diagflat.default", lower_diagflat);
  table.add("aten.one_hot.default", lower_one_hot);
  table.add_complex({"aten.diagonal.default", "aten.tril.default", "aten.triu.default", "aten.trace.default",
                     "aten.diag_embed.default", "aten.diagonal_scatter.default"},
                    separate_each);
}

}  // namespace exportguard::lowering
