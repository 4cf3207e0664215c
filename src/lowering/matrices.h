#pragma once

#include "exportguard/lowering/context.h"

/// Matrices in the last two axes of a tensor. Linear algebra is computed in float64, so that its digits do not depend
/// on the order of a runtime's sums.
namespace exportguard::lowering {

Value* doubled(LoweringContext& ctx, Value* x);  ///< as float64

Value* row_numbers(LoweringContext& ctx, const Size& rows);        ///< int64[rows,1]
Value* column_numbers(LoweringContext& ctx, const Size& columns);  ///< int64[columns]

// `k` is int64[1]; the axis stays, with size 1.
Value* row_at(LoweringContext& ctx, Value* x, Value* k);
Value* column_at(LoweringContext& ctx, Value* x, Value* k);
Value* element_at(LoweringContext& ctx, Value* x, Value* k);  ///< of the main diagonal

Value* matrix_transposed(LoweringContext& ctx, Value* x);
Value* identity_matrix(LoweringContext& ctx, const Size& rows, const Size& columns);  ///< float64
Value* identity_like(LoweringContext& ctx, const std::vector<Size>& sizes);           ///< float64, of that shape
Value* main_diagonal(LoweringContext& ctx, Value* x);                                 ///< of square matrices
Value* kept_where(LoweringContext& ctx, Value* condition, Value* x);                  ///< zero elsewhere

/// The sizes in front of the last two.
std::vector<Size> batch_sizes(LoweringContext& ctx, Value* x);
std::vector<Size> with_sizes(std::vector<Size> batch, const std::vector<Size>& last);
Size smaller(LoweringContext& ctx, const Size& a, const Size& b);

}  // namespace exportguard::lowering
