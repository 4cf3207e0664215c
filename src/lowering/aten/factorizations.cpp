#include <string>

#include "exportguard/lowering/table.h"
#include "lowering/elimination.h"
#include "lowering/iteration.h"
#include "lowering/size_arithmetic.h"

/// QR by Householder's reflections, and functions of matrices.
namespace exportguard::lowering {
namespace {

// ------------------------------------------------------------------------------------------------ QR

/// The first `columns` columns of Q.
Value* orthogonal_columns(LoweringContext& ctx, const Reflections& reflections, const Size& columns) {
  const Size rows = size_of(ctx, reflections.packed, -2);
  Value* identity = identity_like(ctx, with_sizes(batch_sizes(ctx, reflections.packed), {rows, columns}));
  return reflected(ctx, reflections, identity, Order::kLastToFirst);
}

Value* upper_triangle(LoweringContext& ctx, Value* packed, const Size& rows) {
  Value* top = ctx.slice(packed, static_cast<std::int64_t>(ctx.rank(packed)) - 2, 0, rows);
  Value* columns = column_numbers(ctx, size_of(ctx, packed, -1));
  return kept_where(ctx, ctx.op("LessOrEqual", {row_numbers(ctx, rows), columns}), top);
}

void give_qr(LoweringContext& ctx, bool wants_q, bool is_complete) {
  const Reflections found = reflections_of(ctx, doubled(ctx, ctx.input(0)));
  const Size rows = size_of(ctx, found.packed, -2);
  const Size kept = is_complete ? rows : smaller(ctx, rows, size_of(ctx, found.packed, -1));
  Value* q = wants_q ? orthogonal_columns(ctx, found, kept) : ctx.filled({0}, ctx.constant(0, DType::kFloat64));
  ctx.results({q, upper_triangle(ctx, found.packed, kept)});
}

void lower_linalg_qr(LoweringContext& ctx) {
  const std::string_view mode = ctx.text(1);
  ctx.require(mode == "reduced" || mode == "complete" || mode == "r", "unknown mode " + std::string(mode));
  give_qr(ctx, mode != "r", mode == "complete");
}

void lower_qr(LoweringContext& ctx) { give_qr(ctx, true, !ctx.flag(1)); }

void lower_geqrf(LoweringContext& ctx) {
  const Reflections found = reflections_of(ctx, doubled(ctx, ctx.input(0)));
  ctx.results({found.packed, found.taus});
}

Reflections given_reflections(LoweringContext& ctx) { return {doubled(ctx, ctx.input(0)), doubled(ctx, ctx.input(1))}; }

void lower_householder_product(LoweringContext& ctx) {
  const Reflections given = given_reflections(ctx);
  ctx.result(orthogonal_columns(ctx, given, size_of(ctx, given.packed, -1)));
}

/// Q C, Qᵀ C, C Q or C Qᵀ; the last two are the transposed products.
void lower_ormqr(LoweringContext& ctx) {
  const bool is_left = ctx.flag(3);
  const bool is_transposed = ctx.flag(4) == is_left;  // C Q = (Qᵀ Cᵀ)ᵀ
  Value* c = doubled(ctx, ctx.input(2));
  const Order order = is_transposed ? Order::kFirstToLast : Order::kLastToFirst;
  Value* product = reflected(ctx, given_reflections(ctx), is_left ? c : matrix_transposed(ctx, c), order);
  ctx.result(is_left ? product : matrix_transposed(ctx, product));
}

// ------------------------------------------------------------------------------------------------ the exponential

/// How often each matrix must be halved until its norm is at most 1; float64 [..., 1, 1]. One that has NaN or infinite
/// elements stays as it is.
Value* halvings(LoweringContext& ctx, Value* a) {
  const auto rank = static_cast<std::int64_t>(ctx.rank(a));
  Value* sums = ctx.reduce("ReduceSum", ctx.op("Abs", {a}), {rank - 2}, true);
  Value* least = ctx.filled(with_sizes(batch_sizes(ctx, a), {1, 1}), ctx.constant(1, DType::kFloat64));
  Value* norm = ctx.reduce("ReduceMax", ctx.concat({sums, least}, rank - 1), {rank - 1}, true);
  norm = ctx.where(ctx.op("Less", {norm, ctx.constant(1e300, DType::kFloat64)}), norm, least);
  Value* logarithm = ctx.op("Div", {ctx.op("Log", {norm}), ctx.op("Log", {ctx.constant(2, DType::kFloat64)})});
  return ctx.op("Ceil", {logarithm});
}

/// The greatest of the numbers and zero; int64 of rank 0.
Value* greatest_count(LoweringContext& ctx, Value* counts) {
  Value* flat = ctx.concat({ctx.reshape(counts, {Size(-1)}), ctx.filled({1}, ctx.constant(0, DType::kFloat64))}, 0);
  return ctx.cast(ctx.reduce("ReduceMax", flat, {0}, false), DType::kInt64);
}

/// exp(A) = exp(A / 2ˢ)^(2ˢ); Taylor's series for a norm of 1 is good to float64's digits after 18 terms.
void lower_matrix_exp(LoweringContext& ctx) {
  Value* a = doubled(ctx, ctx.input(0));
  Value* counts = halvings(ctx, a);
  Value* scaled = ctx.op("Div", {a, ctx.op("Pow", {ctx.constant(2, DType::kFloat64), counts})});
  Value* identity = identity_like(ctx, ctx.sizes_of(a));
  const WriteStep add_term = [&](Value* iteration, const std::vector<Value*>& state) {
    Value* number = ctx.cast(ctx.op("Add", {iteration, ctx.constant(1, DType::kInt64)}), DType::kFloat64);
    Value* term = ctx.op("Div", {ctx.op("MatMul", {state[0], scaled}), number});
    return Step{{term, ctx.op("Add", {state[1], term})}};
  };
  const WriteStep square = [&](Value* iteration, const std::vector<Value*>& state) {
    Value* is_open = ctx.op("Less", {ctx.cast(iteration, DType::kFloat64), counts});
    return Step{{ctx.where(is_open, ctx.op("MatMul", {state[0], state[0]}), state[0])}};
  };
  Value* series = repeated(ctx, ctx.constant(18, DType::kInt64), {identity, identity}, add_term)[1];
  ctx.result(repeated(ctx, greatest_count(ctx, counts), {series}, square).front());
}

}  // namespace

void populate_factorizations(LoweringTable& table) {
  table.add("aten.linalg_qr.default", lower_linalg_qr);
  table.add("aten.qr.default", lower_qr);
  table.add("aten.geqrf.default", lower_geqrf);
  table.add({"aten.linalg_householder_product.default", "aten.orgqr.default"}, lower_householder_product);
  table.add("aten.ormqr.default", lower_ormqr);
  table.add({"aten.linalg_matrix_exp.default", "aten.matrix_exp.default"}, lower_matrix_exp);
}

}  // namespace exportguard::lowering
