#include <string>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/contraction.h"
#include "lowering/kernels.h"
#include "lowering/moments.h"
#include "lowering/reductions.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

enum class Reduction { kNone = 0, kMean = 1, kSum = 2 };

/// What the loss is measured against, and how the losses become one.
struct Criterion {
  Value* target;
  Value* weight = nullptr;  ///< one for each class
  Reduction reduction = Reduction::kMean;
  std::int64_t ignored = -100;  ///< a target that does not count
  double smoothing = 0;
};

/// `(scores, target, weight, reduction, ignore_index, ...)`
Criterion criterion_of(LoweringContext& ctx) {
  return {.target = ctx.input(1),
          .weight = ctx.find_input(2),
          .reduction = static_cast<Reduction>(ctx.integer(3)),
          .ignored = ctx.integer(4)};
}

/// Classes lie along axis 1, or the only axis.
std::int64_t class_axis(LoweringContext& ctx, const Value* scores) { return ctx.rank(scores) < 2 ? 0 : 1; }

/// What each target adds: the negative score of its class times its weight; both 0 for those ignored.
struct Picked {
  Value* losses;
  Value* weights;
  Value* counts;  ///< bool
};

Picked pick(LoweringContext& ctx, Value* scores, const Criterion& criterion) {
  Value* given = ctx.cast(criterion.target, DType::kInt64);
  Value* counts = ctx.op("Not", {ctx.op("Equal", {given, ctx.constant(criterion.ignored, DType::kInt64)})});
  Value* target = ctx.where(counts, given, ctx.constant(0, DType::kInt64));
  const std::int64_t axis = class_axis(ctx, scores);
  Value* score = ctx.op("GatherElements", {scores, ctx.unsqueeze(target, {axis})}, {{"axis", axis}});
  Value* losses = ctx.op("Neg", {ctx.squeeze(score, {axis})});
  Value* weights = ctx.cast(counts, losses->dtype());
  if (criterion.weight) {
    weights = ctx.op("Mul", {weights, ctx.gather(ctx.cast(criterion.weight, losses->dtype()), target, 0)});
    losses = ctx.op("Mul", {losses, weights});
  }
  return {ctx.where(counts, losses, ctx.number_like(0, losses)), weights, counts};
}

Value* sum(LoweringContext& ctx, Value* x) {
  return kernel_reduce(ctx, "ReduceSum", x, axes_between(0, ctx.rank(x)), false);
}

Value* reduce_losses(LoweringContext& ctx, Value* losses, Value* weights, Reduction reduction) {
  if (reduction == Reduction::kNone) return losses;
  Value* total = sum(ctx, losses);
  return reduction == Reduction::kSum ? total : ctx.op("Div", {total, sum(ctx, weights)});
}

// ------------------------------------------------------------------------------------------------ nll_loss

void lower_nll_loss(LoweringContext& ctx) {
  const Criterion criterion = criterion_of(ctx);
  const Picked picked = pick(ctx, ctx.widened(ctx.input(0)), criterion);
  ctx.result(reduce_losses(ctx, picked.losses, picked.weights, criterion.reduction));
}

void lower_nll_loss_forward(LoweringContext& ctx) {
  const Criterion criterion = criterion_of(ctx);
  const Picked picked = pick(ctx, ctx.widened(ctx.input(0)), criterion);
  const bool has_total = criterion.reduction != Reduction::kNone;
  Value* total = has_total ? sum(ctx, picked.weights) : ctx.number_like(0, picked.weights);
  ctx.results({reduce_losses(ctx, picked.losses, picked.weights, criterion.reduction), total});
}

// ------------------------------------------------------------------------------------------------ cross_entropy

Value* sum_over_classes(LoweringContext& ctx, Value* scores, Value* weight) {
  if (weight) {
    weight = ctx.cast(weight, scores->dtype());
    scores = ctx.op("Mul", {scores, ctx.rank(scores) < 2 ? weight : per_channel(ctx, weight, ctx.rank(scores))});
  }
  return ctx.reduce("ReduceSum", scores, {class_axis(ctx, scores)}, false);
}

/// smoothing / number of classes
Value* share_of_each_class(LoweringContext& ctx, Value* scores, double smoothing) {
  Value* count = ctx.cast(ctx.dim_scalar(scores, class_axis(ctx, scores)), scores->dtype());
  return ctx.op("Div", {ctx.number_like(smoothing, scores), count});
}

/// (1 - smoothing) loss + smoothing times the mean loss over all classes.
Value* smoothed(LoweringContext& ctx, Value* scores, const Criterion& criterion, const Picked& picked) {
  Value* all = ctx.op("Neg", {sum_over_classes(ctx, scores, criterion.weight)});
  Value* counted = ctx.where(picked.counts, all, ctx.number_like(0, all));
  Value* kept = ctx.op("Mul", {picked.losses, ctx.number_like(1 - criterion.smoothing, all)});
  Value* share = share_of_each_class(ctx, scores, criterion.smoothing);
  return ctx.op("Add", {kept, ctx.op("Mul", {counted, share})});
}

Value* with_classes(LoweringContext& ctx, Value* scores, const Criterion& criterion) {
  const Picked picked = pick(ctx, scores, criterion);
  Value* losses = criterion.smoothing > 0 ? smoothed(ctx, scores, criterion, picked) : picked.losses;
  return reduce_losses(ctx, losses, picked.weights, criterion.reduction);
}

/// Targets are probabilities of the classes; the mean is one over all that is not a class.
Value* with_probabilities(LoweringContext& ctx, Value* scores, const Criterion& criterion) {
  Value* target = ctx.cast(criterion.target, scores->dtype());
  if (criterion.smoothing > 0) {
    Value* kept = ctx.op("Mul", {target, ctx.number_like(1 - criterion.smoothing, target)});
    target = ctx.op("Add", {kept, share_of_each_class(ctx, scores, criterion.smoothing)});
  }
  Value* losses = ctx.op("Neg", {sum_over_classes(ctx, ctx.op("Mul", {scores, target}), criterion.weight)});
  if (criterion.reduction != Reduction::kMean) return reduce_losses(ctx, losses, nullptr, criterion.reduction);
  return mean(ctx, losses, {axes_between(0, ctx.rank(losses)), false});
}

Value* cross_entropy(LoweringContext& ctx, Value* x, const Criterion& criterion) {
  x = ctx.widened(x);
  Value* scores = same_dtype_op(ctx, "LogSoftmax", {x}, {{"axis", class_axis(ctx, x)}});
  const bool has_probabilities = is_floating(criterion.target->dtype());
  return has_probabilities ? with_probabilities(ctx, scores, criterion) : with_classes(ctx, scores, criterion);
}

void lower_cross_entropy_loss(LoweringContext& ctx) {
  Criterion criterion = criterion_of(ctx);
  criterion.smoothing = ctx.number(5);
  ctx.result(cross_entropy(ctx, ctx.input(0), criterion));
}

/// The scores of a linear layer: input, weight, target, bias are the first arguments.
Value* linear_scores(LoweringContext& ctx) {
  Value* scores = matmul(ctx, ctx.input(0), ctx.swap_axes(ctx.input(1), 0, 1));
  Value* bias = ctx.find_input(3);
  return bias ? ctx.op("Add", {scores, bias}) : scores;
}

Reduction reduction_named(std::string_view name) {
  if (name == "none") return Reduction::kNone;
  return name == "sum" ? Reduction::kSum : Reduction::kMean;
}

/// The outputs behind the first are gradients.
void lower_linear_cross_entropy(LoweringContext& ctx) {
  const Criterion criterion = {.target = ctx.input(2),
                               .weight = ctx.find_input(4),
                               .reduction = reduction_named(ctx.text(5)),
                               .ignored = ctx.integer(6),
                               .smoothing = ctx.number(7)};
  std::vector<Value*> outputs(ctx.node().output_count(), nullptr);
  outputs.front() = cross_entropy(ctx, linear_scores(ctx), criterion);
  ctx.results(outputs);
}

void lower_linear_cross_entropy_of_each(LoweringContext& ctx) {
  const Criterion criterion = {
      .target = ctx.input(2), .weight = ctx.find_input(4), .reduction = Reduction::kNone, .ignored = ctx.integer(5)};
  ctx.result(cross_entropy(ctx, linear_scores(ctx), criterion));
}

// ------------------------------------------------------------------------------------------------ margins

/// The mean over the classes, which are the last axis; then the reduction. `[batch, classes]`.
Value* mean_over_classes(LoweringContext& ctx, Value* losses, Reduction reduction) {
  Value* means = ctx.reduce("ReduceMean", losses, {1}, false);
  if (reduction == Reduction::kMean) return mean(ctx, means, {{0}, false});
  const bool is_single = reduction == Reduction::kNone && ctx.rank(ctx.input(0)) < 2;
  return is_single ? ctx.squeeze(means, {0}) : reduce_losses(ctx, means, nullptr, reduction);
}

/// [batch, classes]; torch takes one sample without a batch, too.
Value* with_batch(LoweringContext& ctx, Value* x, std::size_t rank) {
  return ctx.unsqueeze(x, axes_between(0, rank - ctx.rank(x)));
}

/// What is above 0; torch asks just that, so that a NaN costs nothing.
Value* hinged(LoweringContext& ctx, Value* gap) {
  Value* zero = ctx.number_like(0, gap);
  return ctx.where(ctx.op("Greater", {gap, zero}), gap, zero);
}

/// The mean over all classes of max(0, margin - score of the target + score)^p, 0 for the target itself.
void lower_multi_margin_loss(LoweringContext& ctx) {
  Value* x = with_batch(ctx, ctx.widened(ctx.input(0)), 2);
  Value* target = ctx.unsqueeze(with_batch(ctx, ctx.input(1), 1), {1});
  Value* picked = ctx.op("GatherElements", {x, target}, {{"axis", 1}});
  Value* gap = ctx.op("Add", {ctx.op("Sub", {x, picked}), ctx.scalar(3, x->dtype())});
  Value* hinge = hinged(ctx, gap);
  if (ctx.number(2) == 2) hinge = ctx.op("Mul", {hinge, hinge});
  if (ctx.has(4)) hinge = ctx.op("Mul", {hinge, ctx.gather(ctx.cast(ctx.input(4), x->dtype()), target, 0)});
  Value* is_target = ctx.op("Equal", {range(ctx, size_of(ctx, x, 1)), target});
  Value* losses = ctx.where(is_target, ctx.number_like(0, x), hinge);
  ctx.result(mean_over_classes(ctx, losses, static_cast<Reduction>(ctx.integer(5))));
}

/// Targets are the classes before the first -1. Bool [batch, targets, 1].
Value* is_listed(LoweringContext& ctx, Value* target) {
  Value* is_end = ctx.cast(ctx.op("Less", {target, ctx.constant(0, DType::kInt64)}), DType::kInt64);
  Value* ends_so_far = ctx.op("CumSum", {is_end, ctx.constant(1, DType::kInt64)});
  return ctx.unsqueeze(ctx.op("Equal", {ends_so_far, ctx.constant(0, DType::kInt64)}), {2});
}

/// For each listed class and each other one: max(0, 1 - score of the listed + score), divided by the number of classes.
void lower_multilabel_margin_loss(LoweringContext& ctx) {
  Value* x = with_batch(ctx, ctx.widened(ctx.input(0)), 2);
  Value* target = with_batch(ctx, ctx.cast(ctx.input(1), DType::kInt64), 2);
  Value* listed = is_listed(ctx, target);
  Value* safe = ctx.op("Max", {target, ctx.constant(0, DType::kInt64)});
  Value* is_same = ctx.op("Equal", {ctx.unsqueeze(target, {2}), range(ctx, size_of(ctx, x, 1))});
  Value* is_target = ctx.cast(ctx.op("And", {is_same, listed}), x->dtype());
  Value* is_other = ctx.op("Equal", {ctx.reduce("ReduceMax", is_target, {1}, true), ctx.number_like(0, x)});
  Value* picked = ctx.unsqueeze(ctx.op("GatherElements", {x, safe}, {{"axis", 1}}), {2});
  Value* gap = ctx.op("Sub", {ctx.unsqueeze(x, {1}), ctx.op("Sub", {picked, ctx.number_like(1, x)})});
  Value* counted = ctx.where(ctx.op("And", {listed, is_other}), hinged(ctx, gap), ctx.number_like(0, x));
  Value* losses = ctx.reduce("ReduceSum", counted, {1}, false);
  ctx.result(mean_over_classes(ctx, losses, static_cast<Reduction>(ctx.integer(2))));
}

}  // namespace

void populate_classification_loss(LoweringTable& table) {
  table.add({"aten.nll_loss.default", "aten.nll_loss_nd.default", "aten.nll_loss2d.default"}, lower_nll_loss);
  table.add({"aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default"}, lower_nll_loss_forward);
  table.add("aten.cross_entropy_loss.default", lower_cross_entropy_loss);
  table.add("torch_nn._linear_cross_entropy_batch_chunked.default", lower_linear_cross_entropy);
  table.add("torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default", lower_linear_cross_entropy_of_each);
  table.add("aten.multi_margin_loss.default", lower_multi_margin_loss);
  table.add("aten.multilabel_margin_loss.default", lower_multilabel_margin_loss);
}

}  // namespace exportguard::lowering
