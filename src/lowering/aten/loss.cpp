#include <cmath>
#include <numbers>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/integer_arithmetic.h"
#include "lowering/kernels.h"
#include "lowering/moments.h"
#include "lowering/reductions.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

enum class Reduction { kNone = 0, kMean = 1, kSum = 2 };

Reduction reduction_at(LoweringContext& ctx, std::size_t i) { return static_cast<Reduction>(ctx.integer(i)); }

Value* reduce_loss(LoweringContext& ctx, Value* loss, Reduction reduction) {
  if (reduction == Reduction::kNone) return loss;
  const ReducedAxes all = {axes_between(0, ctx.rank(loss)), false};
  return reduction == Reduction::kMean ? mean(ctx, loss, all) : kernel_reduce(ctx, "ReduceSum", loss, all.axes, false);
}

/// A tensor operand in the dtype that the loss is computed in.
Value* operand(LoweringContext& ctx, std::size_t i) { return ctx.widened(ctx.cast(ctx.input(i), ctx.output_dtype())); }

Value* zero(LoweringContext& ctx, const Value* like) { return ctx.number_like(0, like); }
Value* add(LoweringContext& ctx, Value* a, Value* b) { return ctx.op("Add", {a, b}); }
Value* subtract(LoweringContext& ctx, Value* a, Value* b) { return ctx.op("Sub", {a, b}); }
Value* multiply(LoweringContext& ctx, Value* a, Value* b) { return ctx.op("Mul", {a, b}); }
Value* scaled(LoweringContext& ctx, Value* a, double factor) { return multiply(ctx, a, ctx.number_like(factor, a)); }
Value* shifted(LoweringContext& ctx, Value* a, double offset) { return add(ctx, a, ctx.number_like(offset, a)); }
Value* at_least(LoweringContext& ctx, Value* a, double bound) { return ctx.op("Max", {a, ctx.number_like(bound, a)}); }

// ------------------------------------------------------------------------------------------------ differences

/// Whether two operands are integers of one dtype: torch computes in it, and wraps around, before it turns to floats.
bool are_integers_alike(LoweringContext& ctx, std::size_t a, std::size_t b) {
  const DType dtype = ctx.input(a)->dtype();
  return !is_floating(dtype) && dtype != DType::kBool && dtype == ctx.input(b)->dtype();
}

/// A - B in the dtype of the operands, as torch subtracts before it computes in floats: integers wrap around.
Value* subtracted(LoweringContext& ctx, std::size_t a, std::size_t b) {
  const DType dtype = ctx.input(a)->dtype();
  if (!are_integers_alike(ctx, a, b)) return subtract(ctx, operand(ctx, a), operand(ctx, b));
  Value* gap = ctx.cast(kernel_op(ctx, "Sub", {ctx.input(a), ctx.input(b)}), dtype);
  return ctx.widened(ctx.cast(gap, ctx.output_dtype()));
}

Value* difference(LoweringContext& ctx) { return subtracted(ctx, 0, 1); }

void lower_mse_loss(LoweringContext& ctx) {
  Value* d = difference(ctx);
  ctx.result(reduce_loss(ctx, multiply(ctx, d, d), reduction_at(ctx, 2)));
}

void lower_l1_loss(LoweringContext& ctx) {
  ctx.result(reduce_loss(ctx, ctx.op("Abs", {difference(ctx)}), reduction_at(ctx, 2)));
}

/// Quadratic below `beta`, linear above.
void lower_smooth_l1_loss(LoweringContext& ctx) {
  const double beta = ctx.number(3);
  Value* size = ctx.op("Abs", {difference(ctx)});
  if (beta == 0) return ctx.result(reduce_loss(ctx, size, reduction_at(ctx, 2)));
  Value* quadratic = scaled(ctx, multiply(ctx, size, size), 0.5 / beta);
  Value* is_small = ctx.op("Less", {size, ctx.number_like(beta, size)});
  Value* loss = ctx.where(is_small, quadratic, shifted(ctx, size, -0.5 * beta));
  ctx.result(reduce_loss(ctx, loss, reduction_at(ctx, 2)));
}

/// Kernels that write into a tensor like the input, whatever dtype a trace says that the result has.
void require_dtype_of_input(LoweringContext& ctx) {
  const bool is_same = !is_floating(ctx.input(0)->dtype()) || ctx.input(0)->dtype() == ctx.output_dtype();
  ctx.require(is_same,
              "torch gives this loss in the dtype of the input, and torch.export says in the wider one of the target; "
              "cast the input or the target to the dtype of the other");
}

void lower_huber_loss(LoweringContext& ctx) {
  require_dtype_of_input(ctx);
  const double delta = ctx.number(3);
  Value* size = ctx.op("Abs", {difference(ctx)});
  Value* quadratic = scaled(ctx, multiply(ctx, size, size), 0.5);
  Value* is_small = ctx.op("LessOrEqual", {size, ctx.number_like(delta, size)});
  Value* loss = ctx.where(is_small, quadratic, scaled(ctx, shifted(ctx, size, -0.5 * delta), delta));
  ctx.result(reduce_loss(ctx, loss, reduction_at(ctx, 2)));
}

// ------------------------------------------------------------------------------------------------ probabilities

/// torch keeps the logarithms of 0 at -100.
Value* bounded_log(LoweringContext& ctx, Value* x) { return at_least(ctx, ctx.op("Log", {x}), -100); }

void lower_binary_cross_entropy(LoweringContext& ctx) {
  Value* x = operand(ctx, 0);
  Value* target = operand(ctx, 1);
  Value* one = ctx.number_like(1, x);
  Value* negative = multiply(ctx, subtract(ctx, target, one), bounded_log(ctx, subtract(ctx, one, x)));
  Value* loss = subtract(ctx, negative, multiply(ctx, target, bounded_log(ctx, x)));
  if (ctx.has(2)) loss = multiply(ctx, loss, operand(ctx, 2));
  ctx.result(reduce_loss(ctx, loss, reduction_at(ctx, 3)));
}

/// log(1 + exp(-|x|)) + max(-x, 0): -log(sigmoid(x)) without overflow.
Value* negative_log_sigmoid(LoweringContext& ctx, Value* x) {
  Value* tail = ctx.op("Exp", {ctx.op("Neg", {ctx.op("Abs", {x})})});
  return add(ctx, ctx.op("Log", {shifted(ctx, tail, 1)}), at_least(ctx, ctx.op("Neg", {x}), 0));
}

void lower_binary_cross_entropy_with_logits(LoweringContext& ctx) {
  Value* x = operand(ctx, 0);
  Value* target = operand(ctx, 1);
  Value* curve = negative_log_sigmoid(ctx, x);
  if (ctx.has(3)) {
    Value* extra = multiply(ctx, shifted(ctx, operand(ctx, 3), -1), target);
    curve = multiply(ctx, shifted(ctx, extra, 1), curve);
  }
  Value* loss = add(ctx, multiply(ctx, subtract(ctx, ctx.number_like(1, x), target), x), curve);
  if (ctx.has(2)) loss = multiply(ctx, loss, operand(ctx, 2));
  ctx.result(reduce_loss(ctx, loss, reduction_at(ctx, 4)));
}

/// target log(target), which is 0 at 0.
Value* entropy_terms(LoweringContext& ctx, Value* target) {
  Value* is_zero = ctx.op("Equal", {target, zero(ctx, target)});
  Value* terms = multiply(ctx, target, ctx.op("Log", {target}));
  return ctx.where(is_zero, zero(ctx, target), terms);
}

void lower_kl_div(LoweringContext& ctx) {
  Value* x = operand(ctx, 0);
  Value* target = operand(ctx, 1);
  Value* loss = nullptr;
  if (ctx.flag(3)) {
    loss = multiply(ctx, ctx.op("Exp", {target}), subtract(ctx, target, x));
  } else {
    loss = subtract(ctx, entropy_terms(ctx, target), multiply(ctx, target, x));
  }
  ctx.result(reduce_loss(ctx, loss, reduction_at(ctx, 2)));
}

/// log(n!) by Stirling, for targets above 1.
Value* stirling(LoweringContext& ctx, Value* target) {
  Value* log_target = ctx.op("Log", {target});
  Value* series = subtract(ctx, multiply(ctx, target, log_target), target);
  Value* correction = scaled(ctx, shifted(ctx, log_target, std::log(2 * std::numbers::pi)), 0.5);
  Value* is_above = ctx.op("Greater", {target, ctx.number_like(1, target)});
  return ctx.where(is_above, add(ctx, series, correction), zero(ctx, target));
}

void lower_poisson_nll_loss(LoweringContext& ctx) {
  Value* x = operand(ctx, 0);
  Value* target = operand(ctx, 1);
  const bool is_log = ctx.flag(2);
  Value* loss = is_log ? subtract(ctx, ctx.op("Exp", {x}), multiply(ctx, target, x))
                       : subtract(ctx, x, multiply(ctx, target, ctx.op("Log", {shifted(ctx, x, ctx.number(4))})));
  if (ctx.flag(3)) loss = add(ctx, loss, stirling(ctx, target));
  ctx.result(reduce_loss(ctx, loss, reduction_at(ctx, 5)));
}

void lower_soft_margin_loss(LoweringContext& ctx) {
  require_dtype_of_input(ctx);
  Value* loss = negative_log_sigmoid(ctx, multiply(ctx, operand(ctx, 0), operand(ctx, 1)));
  ctx.result(reduce_loss(ctx, loss, reduction_at(ctx, 2)));
}

// ------------------------------------------------------------------------------------------------ margins

Value* equals(LoweringContext& ctx, Value* a, double number) {
  return ctx.op("Equal", {a, ctx.number_like(number, a)});
}

/// x where the target is 1, max(0, margin - x) where it is -1.
void lower_hinge_embedding_loss(LoweringContext& ctx) {
  Value* x = operand(ctx, 0);
  Value* target = ctx.input(1);  // of whole numbers and fractions beside each other, in its own dtype
  target = is_floating(target->dtype()) ? ctx.widened(target) : ctx.cast(target, DType::kInt64);
  Value* nothing = zero(ctx, x);
  Value* hinge = at_least(ctx, subtract(ctx, ctx.number_like(ctx.number(2), x), x), 0);
  Value* apart = ctx.where(equals(ctx, target, 1), nothing, hinge);
  Value* alike = ctx.where(equals(ctx, target, -1), nothing, x);
  ctx.result(reduce_loss(ctx, add(ctx, apart, alike), reduction_at(ctx, 3)));
}

void lower_margin_ranking_loss(LoweringContext& ctx) {
  Value* product = multiply(ctx, ctx.op("Neg", {operand(ctx, 2)}), difference(ctx));
  Value* loss = at_least(ctx, shifted(ctx, product, ctx.number(3)), 0);
  ctx.result(reduce_loss(ctx, loss, reduction_at(ctx, 4)));
}

/// The norm of a - b + epsilon along the last axis.
Value* distance(LoweringContext& ctx, Value* difference, double p, double epsilon, bool keepdim = false) {
  Value* gap = shifted(ctx, difference, epsilon);
  const auto last = static_cast<std::int64_t>(ctx.rank(gap)) - 1;
  Value* norm = p_norm(ctx, gap, p, {last});
  return keepdim ? norm : ctx.squeeze(norm, {last});
}

void lower_pairwise_distance(LoweringContext& ctx) {
  ctx.result(distance(ctx, difference(ctx), ctx.number(2), ctx.number(3), ctx.flag(4)));
}

void lower_triplet_margin_loss(LoweringContext& ctx) {
  const double p = ctx.number(4);
  const double epsilon = ctx.number(5);
  Value* near = distance(ctx, subtracted(ctx, 0, 1), p, epsilon);
  Value* far = distance(ctx, subtracted(ctx, 0, 2), p, epsilon);
  if (ctx.flag(6)) far = ctx.op("Min", {far, distance(ctx, subtracted(ctx, 1, 2), p, epsilon)});
  Value* loss = at_least(ctx, shifted(ctx, subtract(ctx, near, far), ctx.number(3)), 0);
  ctx.result(reduce_loss(ctx, loss, reduction_at(ctx, 7)));
}

/// The sum of products along an axis; those of integers wrap around, their sum is an int64.
Value* dot_product(LoweringContext& ctx, std::size_t a, std::size_t b, std::int64_t axis) {
  const DType dtype = ctx.input(a)->dtype();
  if (!are_integers_alike(ctx, a, b))
    return ctx.reduce("ReduceSum", multiply(ctx, operand(ctx, a), operand(ctx, b)), {axis}, false);
  Value* products = ctx.cast(kernel_op(ctx, "Mul", {ctx.input(a), ctx.input(b)}), dtype);
  Value* total = integer_sum(ctx, ctx.cast(products, DType::kInt64), {{axis}, false});
  return ctx.widened(ctx.cast(total, ctx.output_dtype()));
}

/// 1 - cos where the target is 1, max(0, cos - margin) where it is -1.
void lower_cosine_embedding_loss(LoweringContext& ctx) {
  constexpr double kEpsilon = 1e-12;
  Value* target = operand(ctx, 2);
  const auto last = static_cast<std::int64_t>(ctx.rank(target));
  const auto dot = [&](std::size_t left, std::size_t right) { return dot_product(ctx, left, right, last); };
  Value* sizes = multiply(ctx, shifted(ctx, dot(0, 0), kEpsilon), shifted(ctx, dot(1, 1), kEpsilon));
  Value* cosine = ctx.op("Div", {dot(0, 1), ctx.op("Sqrt", {sizes})});
  Value* alike = subtract(ctx, ctx.number_like(1, cosine), cosine);
  Value* apart = at_least(ctx, shifted(ctx, cosine, -ctx.number(3)), 0);
  Value* loss = add(ctx, ctx.where(equals(ctx, target, 1), alike, zero(ctx, cosine)),
                    ctx.where(equals(ctx, target, -1), apart, zero(ctx, cosine)));
  ctx.result(reduce_loss(ctx, loss, reduction_at(ctx, 4)));
}

}  // namespace

void populate_loss(LoweringTable& table) {
  table.add("aten.mse_loss.default", lower_mse_loss);
  table.add("aten.l1_loss.default", lower_l1_loss);
  table.add("aten.smooth_l1_loss.default", lower_smooth_l1_loss);
  table.add("aten.huber_loss.default", lower_huber_loss);
  table.add("aten.binary_cross_entropy.default", lower_binary_cross_entropy);
  table.add("aten.binary_cross_entropy_with_logits.default", lower_binary_cross_entropy_with_logits);
  table.add("aten.kl_div.default", lower_kl_div);
  table.add("aten.poisson_nll_loss.default", lower_poisson_nll_loss);
  table.add("aten.soft_margin_loss.default", lower_soft_margin_loss);
  table.add("aten.hinge_embedding_loss.default", lower_hinge_embedding_loss);
  table.add("aten.margin_ranking_loss.default", lower_margin_ranking_loss);
  table.add("aten.pairwise_distance.default", lower_pairwise_distance);
  table.add("aten.triplet_margin_loss.default", lower_triplet_margin_loss);
  table.add("aten.cosine_embedding_loss.default", lower_cosine_embedding_loss);
}

}  // namespace exportguard::lowering
