#pragma once

#include "lowering/matrices.h"

/// Elimination, substitution and reflections, each a Loop over the columns. Matrices are float64.
namespace exportguard::lowering {

/// A[permutation] = L U, with L below the diagonal and U on and above it.
struct Lu {
  Value* packed;
  Value* pivots;       ///< int64[…, steps]: the row that was swapped with row k, counted from 0
  Value* permutation;  ///< int64[…, rows, 1]
};

/// By partial pivoting: the first of the largest elements is the pivot.
Lu lu_factors(LoweringContext& ctx, Value* a);

/// The permutation that a list of swaps makes; `pivots` counts from 0.
Value* permutation_of(LoweringContext& ctx, Value* pivots, const Size& rows);
Value* rows_permuted(LoweringContext& ctx, Value* x, Value* permutation);
Value* permutation_sign(LoweringContext& ctx, Value* pivots);  ///< float64, 1 or -1

enum class Half { kLower, kUpper };
enum class Diagonal { kGiven, kOnes };

struct Triangle {
  Half half;
  Diagonal diagonal = Diagonal::kGiven;
};

/// X of T X = B, where T is that half of `a`; the batch of `a` broadcasts to that of `b`.
Value* solved_triangle(LoweringContext& ctx, Value* a, Value* b, const Triangle& triangle);
/// X of A X = B from the factors of A.
Value* solved(LoweringContext& ctx, const Lu& lu, Value* b);

/// The inverse of square matrices from their factors.
Value* inverse_of(LoweringContext& ctx, const Lu& lu);
Value* inverse_of(LoweringContext& ctx, Value* a);  ///< in float64

/// L of A = L Lᵀ from the lower half of A, and for each matrix the first k with a minor that is not positive (0: none).
struct Cholesky {
  Value* lower;
  Value* info;  ///< int32
};
Cholesky cholesky_factor(LoweringContext& ctx, Value* a);

/// Householder's reflections 1 - tau v vᵀ: R on and above the diagonal, v below it with 1 on the diagonal.
struct Reflections {
  Value* packed;
  Value* taus;  ///< […, steps]
};
Reflections reflections_of(LoweringContext& ctx, Value* a);

enum class Order { kFirstToLast, kLastToFirst };
/// `x` after every reflection in that order: Q x from the last to the first, Qᵀ x from the first to the last.
Value* reflected(LoweringContext& ctx, const Reflections& reflections, Value* x, Order order);

}  // namespace exportguard::lowering
