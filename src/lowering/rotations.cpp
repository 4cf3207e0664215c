#include "lowering/rotations.h"

#include <algorithm>

#include "lowering/iteration.h"
#include "lowering/reductions.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

constexpr double kSmall = 1e-15;  // relative, of what counts as zero

Value* number(LoweringContext& ctx, double value) { return ctx.constant(value, DType::kFloat64); }

/// Square matrices of one size: what the bodies read of it.
struct Square {
  Square(LoweringContext& ctx, Value* x)
      : size(size_of(ctx, x, -1)),
        batch(batch_sizes(ctx, x)),
        rank(static_cast<std::int64_t>(ctx.rank(x))),
        rows(row_numbers(ctx, size)),
        columns(column_numbers(ctx, size)),
        is_above(ctx.op("Less", {rows, columns})),
        is_below(ctx.op("Greater", {rows, columns})) {}

  /// Each sweep over all pairs gains digits; convergence is quadratic, and few sweeps are needed.
  Value* most_steps(LoweringContext& ctx) const { return as_scalar(ctx, multiply(ctx, multiply(ctx, size, size), 40)); }

  Size size;
  std::vector<Size> batch;
  std::int64_t rank;
  Value* rows;
  Value* columns;
  Value* is_above;  ///< the main diagonal
  Value* is_below;
};

/// The pair of axes with the greatest measure: […, 1, 1] each.
struct Pair {
  Value* first;
  Value* second;
};

Pair greatest_pair(LoweringContext& ctx, const Square& square, Value* measure) {
  Value* masked = ctx.where(square.is_above, measure, number(ctx, -1));
  std::vector<Size> flat = with_sizes(square.batch, {multiply(ctx, square.size, square.size)});
  Value* place = ctx.op("ArgMax", {ctx.reshape(masked, flat)}, {{"axis", square.rank - 2}});
  place = ctx.unsqueeze(place, {square.rank - 1});
  Value* size = as_dim(ctx, maximum(ctx, square.size, 1));  // also where nothing is divided by it
  return {ctx.op("Div", {place, size}), ctx.op("Mod", {place, size})};
}

Value* element(LoweringContext& ctx, const Square& square, Value* x, Value* row, Value* column) {
  Value* is_it = ctx.op("And", {ctx.op("Equal", {square.rows, row}), ctx.op("Equal", {square.columns, column})});
  return ctx.reduce("ReduceSum", kept_where(ctx, is_it, x), {square.rank - 2, square.rank - 1}, true);
}

/// The rotation in the plane of the pair that makes `a`'s element there zero; none where it is zero.
Value* rotation(LoweringContext& ctx, const Square& square, Value* a, const Pair& pair) {
  Value* off = element(ctx, square, a, pair.first, pair.second);
  Value* difference = ctx.op(
      "Sub", {element(ctx, square, a, pair.second, pair.second), element(ctx, square, a, pair.first, pair.first)});
  Value* is_done =
      ctx.op("Or", {ctx.op("Equal", {off, number(ctx, 0)}), ctx.op("GreaterOrEqual", {pair.first, pair.second})});

  Value* twice = ctx.where(is_done, number(ctx, 1), ctx.op("Add", {off, off}));
  Value* cotangent = ctx.op("Div", {difference, twice});
  Value* root = ctx.op("Sqrt", {ctx.op("Add", {ctx.op("Mul", {cotangent, cotangent}), number(ctx, 1)})});
  Value* size = ctx.op("Reciprocal", {ctx.op("Add", {ctx.op("Abs", {cotangent}), root})});
  Value* is_negative = ctx.op("Less", {cotangent, number(ctx, 0)});
  Value* tangent = ctx.where(is_negative, ctx.op("Neg", {size}), size);
  tangent = ctx.where(is_done, number(ctx, 0), tangent);

  Value* length = ctx.op("Sqrt", {ctx.op("Add", {ctx.op("Mul", {tangent, tangent}), number(ctx, 1)})});
  Value* cosine = ctx.op("Reciprocal", {length});
  Value* sine = ctx.op("Mul", {tangent, cosine});

  const auto is_at = [&](Value* row, Value* column) {
    return ctx.op("And", {ctx.op("Equal", {square.rows, row}), ctx.op("Equal", {square.columns, column})});
  };
  Value* on_diagonal = ctx.op("Or", {is_at(pair.first, pair.first), is_at(pair.second, pair.second)});
  Value* turned = ctx.where(on_diagonal, cosine, identity_matrix(ctx, square.size, square.size));
  // A matrix of one row has no pair: both are its only axis, where nothing may be written.
  Value* is_above = ctx.op("And", {square.is_above, is_at(pair.first, pair.second)});
  Value* is_below = ctx.op("And", {square.is_below, is_at(pair.second, pair.first)});
  return ctx.where(is_below, ctx.op("Neg", {sine}), ctx.where(is_above, sine, turned));
}

/// Whether the measure of some pair is above the bound of its matrix; `bound` is […, 1, 1].
Value* goes_on(LoweringContext& ctx, const Square& square, Value* measure, Value* bound) {
  Value* is_far = ctx.op("And", {square.is_above, ctx.op("Greater", {measure, bound})});
  return any_true(ctx, is_far, {});
}

Value* in_order(LoweringContext& ctx, Value* vectors, Value* positions) {
  const auto rank = static_cast<std::int64_t>(ctx.rank(vectors));
  const std::vector<Size> sizes = ctx.sizes_of(vectors);
  const bool is_empty = std::ranges::any_of(sizes, [](const Size& size) { return size.number() == 0; });
  if (is_empty) return vectors;  // nothing to put in order
  Value* index = ctx.expand(ctx.unsqueeze(positions, {rank - 2}), sizes);
  return ctx.op("GatherElements", {vectors, index}, {{"axis", rank - 1}});
}

std::vector<Value*> ordered(LoweringContext& ctx, Value* values, const Size& count, std::int64_t largest) {
  return ctx.op_many("TopK", {values, as_dim(ctx, count)}, 2, {{"largest", largest}});
}

}  // namespace

Eigen symmetric_eigen(LoweringContext& ctx, Value* a) {
  const Square square(ctx, a);
  Value* squares = ctx.op("Mul", {a, a});
  Value* norm = ctx.op("Sqrt", {ctx.reduce("ReduceSum", squares, {square.rank - 2, square.rank - 1}, true)});
  Value* bound = ctx.op("Mul", {norm, number(ctx, kSmall)});
  const WriteStep turn = [&](Value*, const std::vector<Value*>& state) {
    Value* j = rotation(ctx, square, state[0], greatest_pair(ctx, square, ctx.op("Abs", {state[0]})));
    Value* turned = ctx.op("MatMul", {ctx.op("MatMul", {matrix_transposed(ctx, j), state[0]}), j});
    Value* vectors = ctx.op("MatMul", {state[1], j});
    return Step{{turned, vectors}, goes_on(ctx, square, ctx.op("Abs", {turned}), bound)};
  };
  const auto end = repeated(ctx, square.most_steps(ctx), {a, identity_like(ctx, ctx.sizes_of(a))}, turn);
  const auto sorted = ordered(ctx, main_diagonal(ctx, end[0]), square.size, 0);
  return {sorted[0], in_order(ctx, end[1], sorted[1])};
}

OrthogonalColumns orthogonalized(LoweringContext& ctx, Value* a) {
  const auto gram = [&](Value* w) { return ctx.op("MatMul", {matrix_transposed(ctx, w), w}); };
  const Size count = size_of(ctx, a, -1);
  Value* identity = identity_like(ctx, with_sizes(batch_sizes(ctx, a), {count, count}));
  const Square square(ctx, identity);

  // The cosine of the angle between two columns; columns that are nothing but rounding count as zero.
  const auto cosines = [&](Value* products) {
    Value* lengths = ctx.op("Sqrt", {main_diagonal(ctx, products)});
    Value* row = ctx.unsqueeze(lengths, {square.rank - 2});
    Value* longest = ctx.reduce("ReduceSum", row, {square.rank - 1}, true);
    Value* rounding = ctx.op("Mul", {ctx.op("Mul", {longest, longest}), number(ctx, kSmall)});
    Value* product = ctx.op("Mul", {row, ctx.unsqueeze(lengths, {square.rank - 1})});
    Value* floor = ctx.op("Add", {ctx.op("Add", {product, rounding}), number(ctx, 1e-300)});
    return ctx.op("Div", {ctx.op("Abs", {products}), floor});
  };

  const WriteStep turn = [&](Value*, const std::vector<Value*>& state) {
    Value* products = gram(state[0]);
    Value* j = rotation(ctx, square, products, greatest_pair(ctx, square, cosines(products)));
    Value* turned = ctx.op("MatMul", {state[0], j});
    Value* continues = goes_on(ctx, square, cosines(gram(turned)), number(ctx, 10 * kSmall));
    return Step{{turned, ctx.op("MatMul", {state[1], j})}, continues};
  };

  const auto end = repeated(ctx, square.most_steps(ctx), {a, identity}, turn);
  Value* squares = ctx.reduce("ReduceSum", ctx.op("Mul", {end[0], end[0]}), {square.rank - 2}, false);
  const auto sorted = ordered(ctx, ctx.op("Sqrt", {squares}), count, 1);
  return {in_order(ctx, end[0], sorted[1]), sorted[0], in_order(ctx, end[1], sorted[1])};
}

}  // namespace exportguard::lowering
