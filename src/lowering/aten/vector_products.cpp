#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/kernels.h"
#include "lowering/reductions.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

Value* operand(LoweringContext& ctx, std::size_t i) { return ctx.cast(ctx.input(i), ctx.output_dtype()); }

Value* product(LoweringContext& ctx, Value* a, Value* b) { return kernel_op(ctx, "Mul", {a, b}); }

/// Axes of size 1 between and behind the axes, for the elements of the other factor.
Value* spread(LoweringContext& ctx, Value* x, std::size_t rank, std::int64_t first) {
  std::vector<std::int64_t> added;
  for (std::size_t i = 0; i < rank - ctx.rank(x); ++i) added.push_back(static_cast<std::int64_t>(i));
  Value* full = ctx.unsqueeze(x, added);
  added.clear();
  for (std::size_t i = 0; i < rank; ++i) added.push_back(first + 2 * static_cast<std::int64_t>(i));
  return ctx.unsqueeze(full, added);
}

void lower_kron(LoweringContext& ctx) {
  Value* a = operand(ctx, 0);
  Value* b = operand(ctx, 1);
  const std::size_t rank = std::max(ctx.rank(a), ctx.rank(b));
  ctx.result(ctx.reshape_like_output(product(ctx, spread(ctx, a, rank, 1), spread(ctx, b, rank, 0))));
}

/// Powers 0, 1, … of each element, along a new last axis; as many as argument 1 says, or as there are elements in a
/// row.
Value* powers(LoweringContext& ctx) {
  Value* x = operand(ctx, 0);
  if (ctx.rank(x) == 0) x = ctx.unsqueeze(x, {0});
  const Size count = ctx.has(1) ? ctx.sizes(1).front() : size_of(ctx, x, -1);
  const DType carrier = kernel_dtype(ctx, "Pow", x->dtype());
  Value* exponents = ctx.cast(range(ctx, count), carrier);
  return ctx.op("Pow", {ctx.unsqueeze(ctx.cast(x, carrier), {static_cast<std::int64_t>(ctx.rank(x))}), exponents});
}

void lower_linalg_vander(LoweringContext& ctx) { ctx.result(powers(ctx)); }

void lower_vander(LoweringContext& ctx) {
  Value* rising = powers(ctx);
  if (ctx.flag(2)) return ctx.result(rising);
  constexpr std::int64_t kBeforeFirst = std::numeric_limits<std::int64_t>::min();
  ctx.result(ctx.slice(rising, -1, -1, kBeforeFirst, -1));
}

// ------------------------------------------------------------------------------------------------ cross

/// x × y along an axis of three, counted from the end; of an axis of another size anything of the same shape.
Value* cross_along(LoweringContext& ctx, std::int64_t axis) {
  const auto turned = [&](std::size_t i, std::int64_t steps) {
    Value* x = operand(ctx, i);
    const std::int64_t from_start = axis + static_cast<std::int64_t>(ctx.rank(x));
    const Size size = size_of(ctx, x, from_start);
    if (size.number() == 3) return ctx.gather(x, ctx.ints({steps, (steps + 1) % 3, (steps + 2) % 3}), from_start);
    Value* order = ctx.op("Add", {range(ctx, size), ctx.ints({steps})});
    return ctx.gather(x, ctx.op("Mod", {order, as_dim(ctx, maximum(ctx, size, 1))}), from_start);
  };
  Value* left = product(ctx, turned(0, 1), turned(1, 2));
  Value* right = product(ctx, turned(0, 2), turned(1, 1));
  return kernel_op(ctx, "Sub", {left, right});
}

void lower_linalg_cross(LoweringContext& ctx) {
  const auto rank = ctx.output_type().rank().value_or(1);
  ctx.result(cross_along(ctx, ctx.axis(2, rank) - static_cast<std::int64_t>(rank)));
}

/// Without an axis torch takes the first of size 3, which sizes at run time decide where they are not known.
Value* cross_along_first(LoweringContext& ctx, std::int64_t axis) {
  const Value* x = ctx.input(0);
  const auto rank = static_cast<std::int64_t>(ctx.rank(x));
  const bool is_last = axis == rank - 1;
  const auto size = ctx.size(x, axis).constant();
  if (size == 3 || is_last) return cross_along(ctx, axis - rank);
  Value* later = cross_along_first(ctx, axis + 1);
  if (size) return later;
  Value* is_three = ctx.op("Equal", {ctx.dim_of(ctx.input(0), axis), ctx.ints({3})});
  return ctx.where(is_three, cross_along(ctx, axis - rank), later);
}

void lower_cross(LoweringContext& ctx) {
  if (ctx.has(2)) return lower_linalg_cross(ctx);
  ctx.result(cross_along_first(ctx, 0));
}

// ------------------------------------------------------------------------------------------------ distances

constexpr std::int64_t kFewRows = 25;  // torch multiplies matrices for the Euclidean distance of more rows than these

/// sqrt(|a|² + |b|² - 2ab): no tensor with an entry for each row of a, row of b and coordinate is made.
Value* euclidean_by_product(LoweringContext& ctx, Value* a, Value* b) {
  Value* norms_a = ctx.reduce("ReduceSumSquare", a, {-1}, true);
  Value* norms_b = ctx.swap_axes(ctx.reduce("ReduceSumSquare", b, {-1}, true), -1, -2);
  Value* products = ctx.op("MatMul", {a, ctx.swap_axes(b, -1, -2)});
  Value* squares =
      ctx.op("Sub", {ctx.op("Add", {norms_a, norms_b}), ctx.op("Mul", {products, ctx.constant(2, a->dtype())})});
  return ctx.op("Sqrt", {ctx.op("Max", {squares, ctx.constant(0, a->dtype())})});
}

/// The p-norm of the last axis.
Value* norm(LoweringContext& ctx, Value* x, double p) {
  Value* sizes = ctx.op("Abs", {x});
  if (std::isinf(p)) {
    // A zero beside the differences: rows without a coordinate have none.
    std::vector<Size> column = ctx.sizes_of(sizes);
    column.back() = 1;
    Value* zero = ctx.filled(column, ctx.number_like(0, sizes));
    const auto last = static_cast<std::int64_t>(column.size()) - 1;
    return extreme_value(ctx, ctx.concat({sizes, zero}, last), Extreme::kLargest, {{last}, false});
  }
  if (p == 2) return ctx.reduce("ReduceL2", x, {-1}, false);
  if (p == 1) return ctx.reduce("ReduceL1", x, {-1}, false);
  if (p == 0) return ctx.reduce("ReduceSum", ctx.op("Sign", {sizes}), {-1}, false);
  Value* sum = ctx.reduce("ReduceSum", ctx.op("Pow", {sizes, ctx.constant(p, x->dtype())}), {-1}, false);
  return ctx.op("Pow", {sum, ctx.constant(1 / p, x->dtype())});
}

Value* distances(LoweringContext& ctx, Value* a, Value* b, double p) {
  const auto between_a = static_cast<std::int64_t>(ctx.rank(a)) - 1;
  const auto before_b = static_cast<std::int64_t>(ctx.rank(b)) - 2;
  Value* gaps = ctx.op("Sub", {ctx.unsqueeze(a, {between_a}), ctx.unsqueeze(b, {before_b})});
  // The largest gap is a comparison in torch's kernel, which no NaN is greater in; that of pdist keeps it.
  if (std::isinf(p)) gaps = ctx.where(ctx.op("IsNaN", {gaps}), ctx.number_like(0, gaps), gaps);
  return norm(ctx, gaps, p);
}

/// Whether a tensor has many rows: known, or a condition that is computed when the graph runs.
struct ManyRows {
  std::optional<bool> known;
  Value* condition = nullptr;
};

ManyRows has_many_rows(LoweringContext& ctx, Value* x) {
  const auto rows = ctx.size(x, -2);
  if (rows.constant()) return {*rows.constant() > kFewRows};
  return {std::nullopt,
          ctx.op("Greater", {as_scalar(ctx, ctx.dim_value(rows)), ctx.constant(kFewRows, DType::kInt64)})};
}

/// What ATen does for few rows loses nothing where rows are equal or close; for many it would need a lot of memory.
Value* euclidean(LoweringContext& ctx, Value* a, Value* b) {
  const ManyRows of_a = has_many_rows(ctx, a);
  const ManyRows of_b = has_many_rows(ctx, b);
  if (of_a.known.value_or(false) || of_b.known.value_or(false)) return euclidean_by_product(ctx, a, b);
  if (of_a.known && of_b.known) return distances(ctx, a, b, 2);

  Value* condition = of_a.known ? of_b.condition : of_a.condition;
  if (!of_a.known && !of_b.known) condition = ctx.op("Or", {of_a.condition, of_b.condition});
  auto many = std::make_unique<ir::Graph>("many_rows");
  auto few = std::make_unique<ir::Graph>("few_rows");
  {
    const LoweringContext::Inside inside(ctx, *many);
    many->add_output(euclidean_by_product(ctx, a, b), "by_product");
  }
  {
    const LoweringContext::Inside inside(ctx, *few);
    few->add_output(distances(ctx, a, b, 2), "by_difference");
  }
  Value* chosen = ctx.op("If", {condition}, {{"then_branch", std::move(many)}, {"else_branch", std::move(few)}});
  chosen->set_type(ctx.output_type());
  return chosen;
}

void lower_cdist(LoweringContext& ctx) {
  Value* a = operand(ctx, 0);
  Value* b = operand(ctx, 1);
  const double p = ctx.number(2);
  const std::int64_t mode = ctx.has(3) ? ctx.integer(3) : 0;  // 0: by the rows, 1: by product, 2: never
  if (p != 2 || mode == 2) return ctx.result(distances(ctx, a, b, p));
  ctx.result(mode == 1 ? euclidean_by_product(ctx, a, b) : euclidean(ctx, a, b));
}

/// pdist(self, p): the distances of every row to those behind it.
void lower_pdist(LoweringContext& ctx) {
  Value* rows = operand(ctx, 0);
  const double p = ctx.has(1) ? ctx.number(1) : 2;
  const Size count = size_of(ctx, rows, 0);
  Value* numbers = range(ctx, count);
  Value* is_behind = ctx.op("Less", {ctx.unsqueeze(numbers, {1}), numbers});
  Value* pairs = ctx.op("NonZero", {is_behind});
  Value* first = ctx.gather(pairs, ctx.constant(0, DType::kInt64), 0);
  Value* second = ctx.gather(pairs, ctx.constant(1, DType::kInt64), 0);
  ctx.result(norm(ctx, ctx.op("Sub", {ctx.gather(rows, first, 0), ctx.gather(rows, second, 0)}), p));
}

void lower_euclidean_dist(LoweringContext& ctx) {
  ctx.result(euclidean_by_product(ctx, operand(ctx, 0), operand(ctx, 1)));
}

}  // namespace

void populate_vector_products(LoweringTable& table) {
  table.add("aten.kron.default", lower_kron);
  table.add("aten.vander.default", lower_vander);
  table.add("aten.linalg_vander.default", lower_linalg_vander);
  table.add("aten.cross.default", lower_cross);
  table.add("aten.linalg_cross.default", lower_linalg_cross);
  table.add({"aten.cdist.default", "aten._cdist_forward.default"}, lower_cdist);
  table.add({"aten.pdist.default", "aten._pdist_forward.default"}, lower_pdist);
  table.add("aten._euclidean_dist.default", lower_euclidean_dist);
}

}  // namespace exportguard::lowering
