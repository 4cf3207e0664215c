#include "lowering/elimination.h"

#include <algorithm>
#include <limits>

#include "lowering/iteration.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

Value* zero(LoweringContext& ctx) { return ctx.constant(0, DType::kFloat64); }
Value* one(LoweringContext& ctx) { return ctx.constant(1, DType::kFloat64); }
Value* is_zero(LoweringContext& ctx, Value* x) { return ctx.op("Equal", {x, zero(ctx)}); }

/// The sizes and numbers of rows and columns that a body of a loop reads.
struct Grid {
  Grid(LoweringContext& ctx, Value* x)
      : sizes(ctx.sizes_of(x)),
        batch(batch_sizes(ctx, x)),
        rows(row_numbers(ctx, sizes[sizes.size() - 2])),
        columns(column_numbers(ctx, sizes.back())),
        steps(smaller(ctx, sizes[sizes.size() - 2], sizes.back())),
        numbers(range(ctx, steps)) {}

  std::vector<Size> sizes;
  std::vector<Size> batch;
  Value* rows;
  Value* columns;
  Size steps;
  Value* numbers;  ///< of the steps
};

Value* as_index(LoweringContext& ctx, Value* iteration) { return ctx.unsqueeze(iteration, {0}); }

Value* gathered_rows(LoweringContext& ctx, Value* x, Value* index, const std::vector<Size>& sizes) {
  const bool is_empty = std::ranges::any_of(sizes, [](const Size& size) { return size.number() == 0; });
  if (is_empty) return x;  // nothing to gather
  return ctx.op("GatherElements", {x, ctx.expand(index, sizes)},
                {{"axis", static_cast<std::int64_t>(sizes.size()) - 2}});
}

/// For each row where it comes from when rows `k` and `other` are swapped.
Value* swap_of(LoweringContext& ctx, Value* rows, Value* k, Value* other) {
  Value* back = ctx.where(ctx.op("Equal", {rows, k}), other, rows);
  return ctx.where(ctx.op("Equal", {rows, other}), k, back);
}

/// `x` with the entries of a vector's last axis replaced at position `k`.
Value* with_entry(LoweringContext& ctx, Value* numbers, Value* k, Value* entry, Value* x) {
  return ctx.where(ctx.op("Equal", {numbers, k}), entry, x);
}

Value* squeezed_last(LoweringContext& ctx, Value* x, std::size_t rank) {
  return ctx.squeeze(x, {static_cast<std::int64_t>(rank) - 1});
}

/// How large the elements of a column are in the search for the pivot: a NaN is the pivot where the search begins, and
/// is passed over anywhere else (`idamax` of BLAS, which keeps what it has until something is greater).
Value* pivot_size(LoweringContext& ctx, const Grid& grid, Value* x, Value* k) {
  Value* size = ctx.op("Abs", {column_at(ctx, x, k)});
  Value* infinity = ctx.constant(std::numeric_limits<double>::infinity(), DType::kFloat64);
  Value* of_nan = ctx.where(ctx.op("Equal", {grid.rows, k}), infinity, zero(ctx));
  return ctx.where(ctx.op("IsNaN", {size}), of_nan, size);
}

}  // namespace

// ------------------------------------------------------------------------------------------------ LU

Lu lu_factors(LoweringContext& ctx, Value* a) {
  const Grid grid(ctx, a);
  const std::size_t rank = grid.sizes.size();
  const std::vector<Size> column_sizes = with_sizes(grid.batch, {grid.sizes[rank - 2], 1});
  Value* permutation = ctx.expand(grid.rows, column_sizes);
  Value* pivots = ctx.expand(grid.numbers, with_sizes(grid.batch, {grid.steps}));

  const WriteStep eliminate = [&](Value* iteration, const std::vector<Value*>& state) {
    Value* k = as_index(ctx, iteration);
    Value* is_below = ctx.op("Greater", {grid.rows, k});
    Value* is_done = ctx.op("Less", {grid.rows, k});

    Value* size = ctx.where(is_done, ctx.constant(-1, DType::kFloat64), pivot_size(ctx, grid, state[0], k));
    Value* found = ctx.op("ArgMax", {size}, {{"axis", static_cast<std::int64_t>(rank) - 2}});
    Value* swap = swap_of(ctx, grid.rows, k, found);
    Value* swapped = gathered_rows(ctx, state[0], swap, grid.sizes);
    Value* pivot = element_at(ctx, swapped, k);
    Value* divisor = ctx.where(is_zero(ctx, pivot), one(ctx), pivot);

    Value* factor = ctx.op("Div", {column_at(ctx, swapped, k), divisor});
    Value* is_open = ctx.op("And", {is_below, ctx.op("Greater", {grid.columns, k})});
    Value* left = ctx.op("Sub", {swapped, ctx.op("Mul", {factor, row_at(ctx, swapped, k)})});
    Value* is_factor = ctx.op("And", {is_below, ctx.op("Equal", {grid.columns, k})});
    return Step{{ctx.where(is_factor, factor, ctx.where(is_open, left, swapped)),
                 gathered_rows(ctx, state[1], swap, column_sizes),
                 with_entry(ctx, grid.numbers, k, squeezed_last(ctx, found, rank), state[2])}};
  };

  const auto end = repeated(ctx, as_scalar(ctx, grid.steps), {a, permutation, pivots}, eliminate);
  return {end[0], end[2], end[1]};
}

Value* permutation_of(LoweringContext& ctx, Value* pivots, const Size& rows) {
  std::vector<Size> sizes = ctx.sizes_of(pivots);
  const Size steps = sizes.back();
  sizes.back() = rows;
  sizes.emplace_back(1);
  Value* numbers = row_numbers(ctx, rows);
  const WriteStep swap = [&](Value* iteration, const std::vector<Value*>& state) {
    Value* k = as_index(ctx, iteration);
    Value* other = ctx.unsqueeze(column_at(ctx, pivots, k), {static_cast<std::int64_t>(sizes.size()) - 1});
    return Step{{gathered_rows(ctx, state[0], swap_of(ctx, numbers, k, other), sizes)}};
  };
  return repeated(ctx, as_scalar(ctx, steps), {ctx.expand(numbers, sizes)}, swap).front();
}

Value* rows_permuted(LoweringContext& ctx, Value* x, Value* permutation) {
  return gathered_rows(ctx, x, permutation, ctx.sizes_of(x));
}

Value* permutation_sign(LoweringContext& ctx, Value* pivots) {
  Value* numbers = range(ctx, size_of(ctx, pivots, -1));
  Value* is_swap = ctx.op("Not", {ctx.op("Equal", {pivots, numbers})});
  const auto last = static_cast<std::int64_t>(ctx.rank(pivots)) - 1;
  Value* swaps = ctx.reduce("ReduceSum", ctx.cast(is_swap, DType::kInt64), {last}, false);
  Value* is_odd = ctx.op("Mod", {swaps, ctx.constant(2, DType::kInt64)});
  return ctx.cast(ctx.op("Sub", {ctx.constant(1, DType::kInt64), ctx.op("Add", {is_odd, is_odd})}), DType::kFloat64);
}

// ------------------------------------------------------------------------------------------------ substitution

Value* solved_triangle(LoweringContext& ctx, Value* a, Value* b, const Triangle& triangle) {
  const Size count = size_of(ctx, a, -1);
  Value* rows = row_numbers(ctx, count);
  Value* last = ctx.op("Sub", {as_dim(ctx, count), ctx.ints({1})});
  const bool is_upper = triangle.half == Half::kUpper;
  const WriteStep substitute = [&](Value* iteration, const std::vector<Value*>& state) {
    Value* step = as_index(ctx, iteration);
    Value* k = is_upper ? ctx.op("Sub", {last, step}) : step;
    Value* row = row_at(ctx, state[0], k);
    if (triangle.diagonal == Diagonal::kGiven) row = ctx.op("Div", {row, element_at(ctx, a, k)});
    Value* is_open = ctx.op(is_upper ? "Less" : "Greater", {rows, k});
    Value* left = ctx.op("Sub", {state[0], ctx.op("Mul", {column_at(ctx, a, k), row})});
    return Step{{ctx.where(ctx.op("Equal", {rows, k}), row, ctx.where(is_open, left, state[0]))}};
  };
  return repeated(ctx, as_scalar(ctx, count), {b}, substitute).front();
}

Value* solved(LoweringContext& ctx, const Lu& lu, Value* b) {
  Value* x = solved_triangle(ctx, lu.packed, rows_permuted(ctx, b, lu.permutation), {Half::kLower, Diagonal::kOnes});
  return solved_triangle(ctx, lu.packed, x, {Half::kUpper});
}

Value* inverse_of(LoweringContext& ctx, const Lu& lu) {
  return solved(ctx, lu, identity_like(ctx, ctx.sizes_of(lu.packed)));
}

Value* inverse_of(LoweringContext& ctx, Value* a) { return inverse_of(ctx, lu_factors(ctx, doubled(ctx, a))); }

// ------------------------------------------------------------------------------------------------ Cholesky

Cholesky cholesky_factor(LoweringContext& ctx, Value* a) {
  const Grid grid(ctx, a);
  const std::size_t rank = grid.sizes.size();
  Value* none = ctx.filled(with_sizes(grid.batch, {1, 1}), ctx.constant(0, DType::kInt32));

  const WriteStep eliminate = [&](Value* iteration, const std::vector<Value*>& state) {
    Value* k = as_index(ctx, iteration);
    Value* pivot = element_at(ctx, state[0], k);
    Value* is_open = ctx.op("GreaterOrEqual", {grid.rows, k});
    Value* column = ctx.op("Div", {column_at(ctx, state[0], k), ctx.op("Sqrt", {pivot})});
    column = kept_where(ctx, is_open, column);

    Value* taken = ctx.op("Mul", {column, matrix_transposed(ctx, column)});
    Value* factor = ctx.where(ctx.op("Equal", {grid.columns, k}), column, state[1]);
    Value* is_wrong = ctx.op("Not", {ctx.op("Greater", {pivot, zero(ctx)})});
    Value* is_first = ctx.op("And", {is_wrong, ctx.op("Equal", {state[2], ctx.constant(0, DType::kInt32)})});
    Value* number = ctx.cast(ctx.op("Add", {k, ctx.ints({1})}), DType::kInt32);
    return Step{{ctx.op("Sub", {state[0], taken}), factor, ctx.where(is_first, number, state[2])}};
  };

  const auto end = repeated(ctx, as_scalar(ctx, grid.steps), {a, ctx.filled(grid.sizes, zero(ctx)), none}, eliminate);
  const auto last = static_cast<std::int64_t>(rank) - 1;
  return {end[1], ctx.squeeze(end[2], {last - 1, last})};
}

// ------------------------------------------------------------------------------------------------ reflections

namespace {

/// What makes the elements of a column below the diagonal zero.
struct Reflection {
  Value* tau;   ///< […, 1, 1]
  Value* tail;  ///< v below the diagonal
  Value* beta;  ///< the element that the diagonal gets
};

Reflection reflection_of(LoweringContext& ctx, Value* column, Value* alpha, Value* is_below) {
  const auto rank = static_cast<std::int64_t>(ctx.rank(column));
  Value* tail = kept_where(ctx, is_below, column);
  Value* squares = ctx.reduce("ReduceSum", ctx.op("Mul", {tail, tail}), {rank - 2}, true);
  Value* size = ctx.op("Sqrt", {ctx.op("Add", {squares, ctx.op("Mul", {alpha, alpha})})});
  Value* is_done = is_zero(ctx, squares);
  Value* opposite = ctx.where(ctx.op("Less", {alpha, zero(ctx)}), size, ctx.op("Neg", {size}));
  Value* beta = ctx.where(is_done, alpha, opposite);
  Value* difference = ctx.op("Sub", {beta, alpha});
  Value* divisor = ctx.where(is_done, one(ctx), beta);
  Value* scale = ctx.where(is_done, one(ctx), ctx.op("Neg", {difference}));
  return {ctx.op("Div", {difference, divisor}), ctx.op("Div", {tail, scale}), beta};
}

/// x - tau v (vᵀ x), in the rows from `k` on; v is zero above, where x may be infinite or NaN.
Value* after_reflection(LoweringContext& ctx, Value* x, Value* v, Value* tau, Value* is_from_k) {
  const auto rank = static_cast<std::int64_t>(ctx.rank(x));
  Value* product = ctx.reduce("ReduceSum", kept_where(ctx, is_from_k, ctx.op("Mul", {v, x})), {rank - 2}, true);
  return ctx.where(is_from_k, ctx.op("Sub", {x, ctx.op("Mul", {ctx.op("Mul", {tau, v}), product})}), x);
}

}  // namespace

Reflections reflections_of(LoweringContext& ctx, Value* a) {
  const Grid grid(ctx, a);
  const std::size_t rank = grid.sizes.size();
  Value* taus = ctx.filled(with_sizes(grid.batch, {grid.steps}), zero(ctx));
  const WriteStep reflect = [&](Value* iteration, const std::vector<Value*>& state) {
    Value* k = as_index(ctx, iteration);
    Value* is_below = ctx.op("Greater", {grid.rows, k});
    Value* is_pivot_row = ctx.op("Equal", {grid.rows, k});
    const Reflection r = reflection_of(ctx, column_at(ctx, state[0], k), element_at(ctx, state[0], k), is_below);
    Value* v = ctx.where(is_pivot_row, one(ctx), r.tail);
    Value* others = after_reflection(ctx, state[0], v, r.tau, ctx.op("Or", {is_below, is_pivot_row}));
    Value* column = ctx.where(is_pivot_row, r.beta, ctx.where(is_below, r.tail, column_at(ctx, state[0], k)));
    Value* right = ctx.where(ctx.op("Greater", {grid.columns, k}), others, state[0]);
    return Step{{ctx.where(ctx.op("Equal", {grid.columns, k}), column, right),
                 with_entry(ctx, grid.numbers, k, squeezed_last(ctx, r.tau, rank), state[1])}};
  };
  const auto end = repeated(ctx, as_scalar(ctx, grid.steps), {a, taus}, reflect);
  return {end[0], end[1]};
}

Value* reflected(LoweringContext& ctx, const Reflections& reflections, Value* x, Order order) {
  const Size count = size_of(ctx, reflections.taus, -1);
  Value* rows = row_numbers(ctx, size_of(ctx, reflections.packed, -2));
  Value* last = ctx.op("Sub", {as_dim(ctx, count), ctx.ints({1})});
  const auto rank = static_cast<std::int64_t>(ctx.rank(reflections.packed));
  const WriteStep reflect = [&](Value* iteration, const std::vector<Value*>& state) {
    Value* step = as_index(ctx, iteration);
    Value* k = order == Order::kFirstToLast ? step : ctx.op("Sub", {last, step});
    Value* tail = kept_where(ctx, ctx.op("Greater", {rows, k}), column_at(ctx, reflections.packed, k));
    Value* v = ctx.where(ctx.op("Equal", {rows, k}), one(ctx), tail);
    Value* tau = ctx.unsqueeze(ctx.gather(reflections.taus, k, rank - 2), {rank - 1});
    return Step{{after_reflection(ctx, state[0], v, tau, ctx.op("GreaterOrEqual", {rows, k}))}};
  };
  return repeated(ctx, as_scalar(ctx, count), {x}, reflect).front();
}

}  // namespace exportguard::lowering
