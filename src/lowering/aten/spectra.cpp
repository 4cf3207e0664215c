#include <limits>

#include "exportguard/lowering/table.h"
#include "lowering/elimination.h"
#include "lowering/rotations.h"
#include "lowering/size_arithmetic.h"

/// Eigenvalues of symmetric matrices, singular values, and what is made of them. Vectors are right up to their sign,
/// which LAPACK leaves open as well.
namespace exportguard::lowering {
namespace {

/// The whole of a symmetric matrix of which torch reads one half.
Value* symmetric(LoweringContext& ctx, Value* a, Half half) {
  Value* rows = row_numbers(ctx, size_of(ctx, a, -1));
  Value* columns = column_numbers(ctx, size_of(ctx, a, -1));
  Value* is_given = ctx.op(half == Half::kLower ? "GreaterOrEqual" : "LessOrEqual", {rows, columns});
  return ctx.where(is_given, a, matrix_transposed(ctx, a));
}

Half half_named(std::string_view name) { return name == "U" || name == "u" ? Half::kUpper : Half::kLower; }

void lower_eigh(LoweringContext& ctx) {
  const Eigen found = symmetric_eigen(ctx, symmetric(ctx, doubled(ctx, ctx.input(0)), half_named(ctx.text(1))));
  ctx.results({found.values, found.vectors});
}

void lower_eigvalsh(LoweringContext& ctx) {
  ctx.result(symmetric_eigen(ctx, symmetric(ctx, doubled(ctx, ctx.input(0)), half_named(ctx.text(1)))).values);
}

// ------------------------------------------------------------------------------------------------ singular values

Value* first_columns(LoweringContext& ctx, Value* x, const Size& count) {
  if (count.number() && ctx.size(x, -1).constant() == count.number()) return x;
  Value* kept = ctx.slice(x, static_cast<std::int64_t>(ctx.rank(x)) - 1, 0, count);
  if (!count.number()) return kept;
  ir::Type type = kept->type();
  type.shape->back() = *count.number();
  kept->set_type(std::move(type));
  return kept;
}

/// Orthonormal columns in the directions of W's, and such as are missing: Q of W = Q R with the signs of R.
Value* left_vectors(LoweringContext& ctx, const OrthogonalColumns& found, const Size& kept, const Size& wanted) {
  const auto rank = static_cast<std::int64_t>(ctx.rank(found.columns));
  const Reflections reflections = reflections_of(ctx, first_columns(ctx, found.columns, kept));
  const Size rows = size_of(ctx, found.columns, -2);
  Value* identity = identity_like(ctx, with_sizes(batch_sizes(ctx, found.columns), {rows, wanted}));
  Value* q = reflected(ctx, reflections, identity, Order::kLastToFirst);
  Value* r = ctx.slice(reflections.packed, rank - 2, 0, kept);
  Value* is_negative = ctx.op("Less", {main_diagonal(ctx, r), ctx.constant(0, DType::kFloat64)});
  Value* signs = ctx.where(is_negative, ctx.constant(-1, DType::kFloat64), ctx.constant(1, DType::kFloat64));
  std::vector<Size> missing = batch_sizes(ctx, found.columns);
  missing.push_back(subtract(ctx, wanted, kept));
  Value* all = ctx.concat({signs, ctx.filled(missing, ctx.constant(1, DType::kFloat64))}, rank - 2);
  return ctx.op("Mul", {q, ctx.unsqueeze(all, {rank - 2})});
}

struct Sides {
  Size rows;
  Size columns;
  Size kept;  ///< the smaller
};

Sides sides_of(LoweringContext& ctx, Value* a) {
  const Size rows = size_of(ctx, a, -2);
  const Size columns = size_of(ctx, a, -1);
  return {rows, columns, smaller(ctx, rows, columns)};
}

Value* singular_values(LoweringContext& ctx, Value* a) {
  return first_columns(ctx, orthogonalized(ctx, a).lengths, sides_of(ctx, a).kept);
}

void lower_svd(LoweringContext& ctx) {
  Value* a = doubled(ctx, ctx.input(0));
  const bool wants_vectors = ctx.node().op() == "linalg_svd.default" || ctx.flag(2);
  if (!wants_vectors) {
    Value* none = ctx.filled({0}, ctx.constant(0, DType::kFloat64));
    return ctx.results({none, singular_values(ctx, a), none});
  }
  const Sides sides = sides_of(ctx, a);
  const OrthogonalColumns found = orthogonalized(ctx, a);
  const bool is_full = ctx.flag(1);
  Value* u = left_vectors(ctx, found, sides.kept, is_full ? sides.rows : sides.kept);
  Value* v = is_full ? found.v : first_columns(ctx, found.v, sides.kept);
  ctx.results({u, first_columns(ctx, found.lengths, sides.kept), matrix_transposed(ctx, v)});
}

void lower_svdvals(LoweringContext& ctx) { ctx.result(singular_values(ctx, doubled(ctx, ctx.input(0)))); }

// ------------------------------------------------------------------------------------------------ the pseudo-inverse

double machine_epsilon(DType dtype) {
  return dtype == DType::kFloat64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
}

/// A bound for each matrix: […, 1]; null for None.
Value* find_bound(LoweringContext& ctx, std::size_t i) {
  if (!ctx.has(i)) return nullptr;
  Value* bound = ctx.scalar(i, DType::kFloat64);
  const auto rank = static_cast<std::int64_t>(ctx.rank(bound));
  return ctx.unsqueeze(bound, {rank});
}

/// Bounds for singular values, […, 1] or [1]; null: not given.
struct Bounds {
  Value* absolute = nullptr;
  Value* relative = nullptr;
};

/// The greater of atol and rtol times the greatest singular value; rtol is the larger side times the dtype's epsilon
/// unless it or a positive atol is given.
Value* cutoff(LoweringContext& ctx, const Sides& sides, const Bounds& bounds, Value* greatest) {
  Value* zero = ctx.constant(0, DType::kFloat64);
  Value* absolute = bounds.absolute ? bounds.absolute : zero;
  Value* side = ctx.cast(as_dim(ctx, maximum(ctx, sides.rows, sides.columns)), DType::kFloat64);
  Value* usual = ctx.op("Mul", {side, ctx.constant(machine_epsilon(ctx.input(0)->dtype()), DType::kFloat64)});
  Value* relative = bounds.relative ? bounds.relative : ctx.where(ctx.op("Greater", {absolute, zero}), zero, usual);
  return ctx.op("Max", {absolute, ctx.op("Mul", {relative, greatest})});
}

/// A⁺ = V diag(1 / s²) Wᵀ over the singular values s that are not small.
void pseudo_inverse(LoweringContext& ctx, const Bounds& bounds, bool is_hermitian) {
  Value* a = doubled(ctx, ctx.input(0));
  if (is_hermitian) a = symmetric(ctx, a, Half::kLower);
  const OrthogonalColumns found = orthogonalized(ctx, a);
  const auto rank = static_cast<std::int64_t>(ctx.rank(a));
  const Sides sides = sides_of(ctx, a);
  std::vector<Size> one_more = batch_sizes(ctx, a);
  one_more.emplace_back(1);
  Value* none = ctx.filled(one_more, ctx.constant(0, DType::kFloat64));  // for empty matrices
  Value* greatest = ctx.slice(ctx.concat({found.lengths, none}, rank - 2), rank - 2, 0, 1);
  Value* is_kept = ctx.op("Greater", {found.lengths, cutoff(ctx, sides, bounds, greatest)});
  Value* squares = ctx.op("Mul", {found.lengths, found.lengths});
  Value* safe = ctx.where(is_kept, squares, ctx.constant(1, DType::kFloat64));
  Value* weights = kept_where(ctx, is_kept, ctx.op("Reciprocal", {safe}));
  const auto before_last = static_cast<std::int64_t>(ctx.rank(weights)) - 1;  // bounds may have more axes
  Value* weighted = ctx.op("Mul", {found.v, ctx.unsqueeze(weights, {before_last})});
  ctx.result(ctx.op("MatMul", {weighted, matrix_transposed(ctx, found.columns)}));
}

/// linalg_pinv(self, *, atol, rtol, hermitian), of numbers or tensors
void lower_pinv(LoweringContext& ctx) { pseudo_inverse(ctx, {find_bound(ctx, 1), find_bound(ctx, 2)}, ctx.flag(3)); }

/// linalg_pinv(self, rcond, hermitian)
void lower_pinv_above_share(LoweringContext& ctx) { pseudo_inverse(ctx, {nullptr, find_bound(ctx, 1)}, ctx.flag(2)); }

/// pinverse(self, rcond)
void lower_pinverse(LoweringContext& ctx) { pseudo_inverse(ctx, {nullptr, find_bound(ctx, 1)}, false); }

}  // namespace

void populate_spectra(LoweringTable& table) {
  table.add("aten._linalg_eigh.default", lower_eigh);
  table.add("aten.linalg_eigh.default", lower_eigh);
  table.add("aten.linalg_eigvalsh.default", lower_eigvalsh);
  table.add({"aten._linalg_svd.default", "aten.linalg_svd.default"}, lower_svd);
  table.add("aten.linalg_svdvals.default", lower_svdvals);
  table.add({"aten.linalg_pinv.atol_rtol_tensor", "aten.linalg_pinv.atol_rtol_float"}, lower_pinv);
  table.add({"aten.linalg_pinv.default", "aten.linalg_pinv.rcond_tensor"}, lower_pinv_above_share);
  table.add("aten.pinverse.default", lower_pinverse);
}

}  // namespace exportguard::lowering
