#include <algorithm>

#include "exportguard/lowering/table.h"
#include "lowering/elimination.h"
#include "lowering/size_arithmetic.h"

/// Determinants, inverses and solutions of systems of linear equations.
namespace exportguard::lowering {
namespace {

/// torch counts rows from 1.
Value* as_torch_pivots(LoweringContext& ctx, const Lu& lu) {
  return ctx.cast(ctx.op("Add", {lu.pivots, ctx.constant(1, DType::kInt64)}), DType::kInt32);
}

Value* pivots_of_torch(LoweringContext& ctx, Value* pivots) {
  return ctx.op("Sub", {ctx.cast(pivots, DType::kInt64), ctx.constant(1, DType::kInt64)});
}

/// The number of the first pivot that is zero, counted from 1; 0 if there is none.
Value* singular_at(LoweringContext& ctx, Value* packed) {
  const auto rank = static_cast<std::int64_t>(ctx.rank(packed));
  const Size steps = smaller(ctx, size_of(ctx, packed, -2), size_of(ctx, packed, -1));
  Value* square = ctx.slice(ctx.slice(packed, rank - 2, 0, steps), rank - 1, 0, steps);
  Value* is_zero = ctx.op("Equal", {main_diagonal(ctx, square), ctx.constant(0, DType::kFloat64)});
  Value* numbers = ctx.op("Add", {range(ctx, steps), ctx.ints({1})});
  Value* many = ctx.constant(std::int64_t{1} << 30, DType::kInt64);
  std::vector<Size> one_more = batch_sizes(ctx, packed);
  one_more.emplace_back(1);
  Value* none = ctx.filled(one_more, many);
  Value* first =
      ctx.reduce("ReduceMin", ctx.concat({ctx.where(is_zero, numbers, many), none}, rank - 2), {rank - 2}, false);
  return ctx.cast(ctx.where(ctx.op("Equal", {first, many}), ctx.constant(0, DType::kInt64), first), DType::kInt32);
}

Value* product_of_pivots(LoweringContext& ctx, Value* factors) {
  return ctx.reduce("ReduceProd", factors, {static_cast<std::int64_t>(ctx.rank(factors)) - 1}, false);
}

constexpr const char* kFactorsAreOpen =
    "its factors depend on how the matrix lies in memory; take those of torch.linalg.lu_factor";

/// The factors behind the results of the internal operators are for gradients: those of the matrix or of its transpose,
/// as it lies in memory (`_linalg_det` in BatchLinearAlgebra.cpp, torch 2.11 to 2.13).
void finish(LoweringContext& ctx, std::vector<Value*> results) {
  const ir::Node& node = ctx.node();
  for (std::size_t i = results.size(); i < node.output_count(); ++i)
    ctx.require(node.output(i).is_unused(), kFactorsAreOpen);
  results.resize(node.output_count(), nullptr);
  ctx.results(results);
}

void lower_det(LoweringContext& ctx) {
  const Lu lu = lu_factors(ctx, doubled(ctx, ctx.input(0)));
  Value* product = product_of_pivots(ctx, main_diagonal(ctx, lu.packed));
  finish(ctx, {ctx.op("Mul", {product, permutation_sign(ctx, lu.pivots)})});
}

struct SignedLogarithm {
  Value* sign;
  Value* logarithm;
};

SignedLogarithm log_determinant(LoweringContext& ctx, const Lu& lu) {
  Value* pivots = main_diagonal(ctx, lu.packed);
  const auto last = static_cast<std::int64_t>(ctx.rank(pivots)) - 1;
  Value* sign = ctx.op("Mul", {product_of_pivots(ctx, ctx.op("Sign", {pivots})), permutation_sign(ctx, lu.pivots)});
  return {sign, ctx.reduce("ReduceSum", ctx.op("Log", {ctx.op("Abs", {pivots})}), {last}, false)};
}

void lower_slogdet(LoweringContext& ctx) {
  const Lu lu = lu_factors(ctx, doubled(ctx, ctx.input(0)));
  const SignedLogarithm found = log_determinant(ctx, lu);
  finish(ctx, {found.sign, found.logarithm});
}

/// log(1) is zero, log(-1) NaN.
void lower_logdet(LoweringContext& ctx) {
  const auto [sign, logarithm] = log_determinant(ctx, lu_factors(ctx, doubled(ctx, ctx.input(0))));
  ctx.result(ctx.op("Add", {logarithm, ctx.op("Log", {sign})}));
}

// ------------------------------------------------------------------------------------------------ systems

/// B as torch takes it: a vector for each matrix, or matrices; X may stand on the left of A.
struct System {
  Value* a;
  Value* b;
  bool is_vector;
  bool is_right;  ///< X A = B
};

bool is_vector(LoweringContext& ctx, Value* a, Value* b) {
  if (ctx.rank(b) == 1) return true;
  if (ctx.rank(b) + 1 != ctx.rank(a)) return false;
  ir::Shape batch = ctx.shape(a);
  batch.pop_back();
  return batch == ctx.shape(b);
}

/// `b` in the batch that both have together.
Value* with_batch_of_both(LoweringContext& ctx, Value* a, Value* b) {
  const std::size_t a_rank = ctx.rank(a);
  const std::size_t b_rank = ctx.rank(b);
  const std::size_t rank = std::max(a_rank, b_rank);
  std::vector<Size> sizes = {size_of(ctx, b, -2), size_of(ctx, b, -1)};
  for (std::size_t i = 3; i <= rank; ++i) {  // from the end
    const auto axis = -static_cast<std::int64_t>(i);
    const bool is_of_b = i <= b_rank && (i > a_rank || ctx.size(b, axis).constant() != 1);
    sizes.insert(sizes.begin(), size_of(ctx, is_of_b ? b : a, axis));
  }
  return ctx.expand(b, sizes);
}

System system_of(LoweringContext& ctx, Value* a, Value* b, bool is_left) {
  System system = {doubled(ctx, a), doubled(ctx, b), is_vector(ctx, a, b), !is_left};
  if (system.is_vector) system.b = ctx.unsqueeze(system.b, {static_cast<std::int64_t>(ctx.rank(b))});
  if (system.is_right) {
    system.a = matrix_transposed(ctx, system.a);
    system.b = matrix_transposed(ctx, system.b);
  }
  system.b = with_batch_of_both(ctx, system.a, system.b);
  return system;
}

Value* as_given(LoweringContext& ctx, const System& system, Value* x) {
  if (system.is_right) x = matrix_transposed(ctx, x);
  return system.is_vector ? ctx.squeeze(x, {static_cast<std::int64_t>(ctx.rank(x)) - 1}) : x;
}

void lower_solve_ex(LoweringContext& ctx) {
  const System system = system_of(ctx, ctx.input(0), ctx.input(1), ctx.flag(2));
  const Lu lu = lu_factors(ctx, system.a);
  Value* x = as_given(ctx, system, solved(ctx, lu, system.b));
  Value* info = singular_at(ctx, lu.packed);
  const ir::Node& node = ctx.node();
  if (node.output_count() == 2) return ctx.results({x, info});
  ctx.require(node.output(1).is_unused() && node.output(2).is_unused(), kFactorsAreOpen);
  ctx.results({x, nullptr, nullptr, info});
}

void lower_inv_ex(LoweringContext& ctx) {
  const Lu lu = lu_factors(ctx, doubled(ctx, ctx.input(0)));
  ctx.results({inverse_of(ctx, lu), singular_at(ctx, lu.packed)});
}

void lower_inv(LoweringContext& ctx) { ctx.result(inverse_of(ctx, ctx.input(0))); }

void lower_solve(LoweringContext& ctx) {
  const System system = system_of(ctx, ctx.input(0), ctx.input(1), ctx.flag(2));
  ctx.result(as_given(ctx, system, solved(ctx, lu_factors(ctx, system.a), system.b)));
}

Triangle triangle_of(bool is_upper, bool is_unit) {
  return {is_upper ? Half::kUpper : Half::kLower, is_unit ? Diagonal::kOnes : Diagonal::kGiven};
}

/// solve_triangular(A, B, *, upper, left, unitriangular)
void lower_solve_triangular(LoweringContext& ctx) {
  System system = system_of(ctx, ctx.input(0), ctx.input(1), ctx.flag(3));
  const bool is_upper = ctx.flag(2) != system.is_right;
  ctx.result(as_given(ctx, system, solved_triangle(ctx, system.a, system.b, triangle_of(is_upper, ctx.flag(4)))));
}

/// triangular_solve(B, A, upper, transpose, unitriangular)
void lower_triangular_solve(LoweringContext& ctx) {
  Value* a = doubled(ctx, ctx.input(1));
  if (ctx.flag(3)) a = matrix_transposed(ctx, a);
  Value* b = with_batch_of_both(ctx, a, doubled(ctx, ctx.input(0)));
  const bool is_upper = ctx.flag(2) != ctx.flag(3);
  ctx.results({solved_triangle(ctx, a, b, triangle_of(is_upper, ctx.flag(4))), ctx.input(1)});
}

// ------------------------------------------------------------------------------------------------ LU

void lower_lu_factor_ex(LoweringContext& ctx) {
  ctx.require(ctx.flag(1), "LU without pivoting runs on CUDA alone; pass pivot=True");
  const Lu lu = lu_factors(ctx, doubled(ctx, ctx.input(0)));
  std::vector<Value*> results = {lu.packed, as_torch_pivots(ctx, lu), singular_at(ctx, lu.packed)};
  results.resize(ctx.node().output_count());
  ctx.results(results);
}

Value* lower_of(LoweringContext& ctx, Value* packed) {
  const Size rows = size_of(ctx, packed, -2);
  const Size steps = smaller(ctx, rows, size_of(ctx, packed, -1));
  Value* left = ctx.slice(packed, static_cast<std::int64_t>(ctx.rank(packed)) - 1, 0, steps);
  Value* is_below = ctx.op("Greater", {row_numbers(ctx, rows), column_numbers(ctx, steps)});
  return ctx.where(is_below, left, ctx.cast(identity_matrix(ctx, rows, steps), left->dtype()));
}

Value* upper_of(LoweringContext& ctx, Value* packed) {
  const Size columns = size_of(ctx, packed, -1);
  const Size steps = smaller(ctx, size_of(ctx, packed, -2), columns);
  Value* top = ctx.slice(packed, static_cast<std::int64_t>(ctx.rank(packed)) - 2, 0, steps);
  Value* is_above = ctx.op("LessOrEqual", {row_numbers(ctx, steps), column_numbers(ctx, columns)});
  return kept_where(ctx, is_above, top);
}

/// P of A = P L U.
Value* permutation_matrix(LoweringContext& ctx, Value* permutation) {
  Value* numbers = row_numbers(ctx, size_of(ctx, permutation, -2));
  return ctx.cast(ctx.op("Equal", {numbers, matrix_transposed(ctx, permutation)}), DType::kFloat64);
}

void lower_lu(LoweringContext& ctx) {
  ctx.require(ctx.flag(1), "LU without pivoting runs on CUDA alone; pass pivot=True");
  const Lu lu = lu_factors(ctx, doubled(ctx, ctx.input(0)));
  ctx.results({permutation_matrix(ctx, lu.permutation), lower_of(ctx, lu.packed), upper_of(ctx, lu.packed)});
}

void lower_lu_unpack(LoweringContext& ctx) {
  Value* packed = ctx.input(0);
  Value* none = ctx.filled({0}, ctx.number_like(0, packed));
  std::vector<Value*> results(3, none);
  if (ctx.flag(3)) {
    Value* pivots = pivots_of_torch(ctx, ctx.input(1));
    results[0] = permutation_matrix(ctx, permutation_of(ctx, pivots, size_of(ctx, packed, -2)));
  }
  if (ctx.flag(2)) {
    results[1] = lower_of(ctx, packed);
    results[2] = upper_of(ctx, packed);
  }
  ctx.results(results);
}

/// The adjoint system Aᵀ X = B: Uᵀ, then Lᵀ, then the permutation backwards.
Value* solved_adjoint(LoweringContext& ctx, const Lu& lu, Value* b) {
  Value* transposed = matrix_transposed(ctx, lu.packed);
  Value* x = solved_triangle(ctx, transposed, b, {Half::kLower});
  x = solved_triangle(ctx, transposed, x, {Half::kUpper, Diagonal::kOnes});
  return ctx.op("MatMul", {permutation_matrix(ctx, lu.permutation), x});
}

/// lu_solve(LU, pivots, B, *, left, adjoint); X A = B is the adjoint system of the transposed B.
void lower_lu_solve(LoweringContext& ctx, std::size_t b, bool is_left, bool is_adjoint) {
  Value* packed = doubled(ctx, ctx.input(b == 0 ? 1 : 0));
  Value* pivots = pivots_of_torch(ctx, ctx.input(b == 0 ? 2 : 1));
  const Lu lu = {packed, pivots, permutation_of(ctx, pivots, size_of(ctx, packed, -2))};
  Value* given = doubled(ctx, ctx.input(b));
  if (!is_left) given = matrix_transposed(ctx, given);
  given = with_batch_of_both(ctx, packed, given);
  Value* x = is_left != is_adjoint ? solved(ctx, lu, given) : solved_adjoint(ctx, lu, given);
  ctx.result(is_left ? x : matrix_transposed(ctx, x));
}

void lower_linalg_lu_solve(LoweringContext& ctx) { lower_lu_solve(ctx, 2, ctx.flag(3), ctx.flag(4)); }
void lower_old_lu_solve(LoweringContext& ctx) { lower_lu_solve(ctx, 0, true, false); }

// ------------------------------------------------------------------------------------------------ Cholesky

/// From the half of A that torch reads, as L or its transpose.
Cholesky cholesky_of(LoweringContext& ctx, bool is_upper) {
  Value* a = doubled(ctx, ctx.input(0));
  Cholesky found = cholesky_factor(ctx, is_upper ? matrix_transposed(ctx, a) : a);
  if (is_upper) found.lower = matrix_transposed(ctx, found.lower);
  return found;
}

void lower_cholesky(LoweringContext& ctx) { ctx.result(cholesky_of(ctx, ctx.flag(1)).lower); }

void lower_cholesky_ex(LoweringContext& ctx) {
  const Cholesky found = cholesky_of(ctx, ctx.flag(1));
  ctx.results({found.lower, found.info});
}

/// X of L Lᵀ X = B, or Uᵀ U X = B.
Value* solved_by_cholesky(LoweringContext& ctx, Value* factor, Value* b, bool is_upper) {
  Value* lower = is_upper ? matrix_transposed(ctx, factor) : factor;
  Value* upper = is_upper ? factor : matrix_transposed(ctx, factor);
  return solved_triangle(ctx, upper, solved_triangle(ctx, lower, b, {Half::kLower}), {Half::kUpper});
}

void lower_cholesky_solve(LoweringContext& ctx) {
  Value* factor = doubled(ctx, ctx.input(1));
  Value* b = with_batch_of_both(ctx, factor, doubled(ctx, ctx.input(0)));
  ctx.result(solved_by_cholesky(ctx, factor, b, ctx.flag(2)));
}

void lower_cholesky_inverse(LoweringContext& ctx) {
  Value* factor = doubled(ctx, ctx.input(0));
  ctx.result(solved_by_cholesky(ctx, factor, identity_like(ctx, ctx.sizes_of(factor)), ctx.flag(1)));
}

/// What a matrix is that cannot be inverted or factored: eager raises, the model gives what it computed.
void lower_check_errors(LoweringContext& ctx) { ctx.results(std::vector<Value*>(ctx.node().output_count(), nullptr)); }

}  // namespace

void populate_linear_systems(LoweringTable& table) {
  table.add({"aten._linalg_det.default", "aten.linalg_det.default", "aten.det.default"}, lower_det);
  table.add({"aten._linalg_slogdet.default", "aten.linalg_slogdet.default", "aten.slogdet.default"}, lower_slogdet);
  table.add("aten.logdet.default", lower_logdet);
  table.add({"aten._linalg_solve_ex.default", "aten.linalg_solve_ex.default"}, lower_solve_ex);
  table.add("aten.linalg_inv_ex.default", lower_inv_ex);
  table.add({"aten.linalg_inv.default", "aten.inverse.default"}, lower_inv);
  table.add("aten.linalg_solve.default", lower_solve);
  table.add("aten.linalg_solve_triangular.default", lower_solve_triangular);
  table.add("aten.triangular_solve.default", lower_triangular_solve);

  table.add({"aten.linalg_lu_factor_ex.default", "aten.linalg_lu_factor.default"}, lower_lu_factor_ex);
  table.add("aten.linalg_lu.default", lower_lu);
  table.add("aten.lu_unpack.default", lower_lu_unpack);
  table.add("aten.linalg_lu_solve.default", lower_linalg_lu_solve);
  table.add("aten.lu_solve.default", lower_old_lu_solve);

  table.add({"aten.cholesky.default", "aten.linalg_cholesky.default"}, lower_cholesky);
  table.add("aten.linalg_cholesky_ex.default", lower_cholesky_ex);
  table.add("aten.cholesky_solve.default", lower_cholesky_solve);
  table.add("aten.cholesky_inverse.default", lower_cholesky_inverse);
  table.add("aten._linalg_check_errors.default", lower_check_errors);
}

}  // namespace exportguard::lowering
