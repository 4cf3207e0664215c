// NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss: classes on axis 1.
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;

// Labels that are ignored weigh nothing; the mean is over the weights that are left.
Tensor loss_of(const Call& call, const Tensor& logarithms) {
  const Tensor labels = call.input(1).to(at::kLong);
  const auto ignored = call.find_integer("ignore_index");
  const Tensor is_ignored = ignored ? labels.eq(*ignored) : labels.ne(labels);
  const Tensor safe = at::where(is_ignored, at::zeros_like(labels), labels);
  const std::int64_t classes = logarithms.size(1);
  const bool is_inside =
      safe.numel() == 0 || (safe.min().item<std::int64_t>() >= 0 && safe.max().item<std::int64_t>() < classes);
  call.require(is_inside, "a label is out of range");
  Tensor weights = at::zeros_like(safe, logarithms.options()).add(1);
  if (call.has(2)) weights = raised(call.input(2)).index_select(0, safe.reshape({-1})).reshape(safe.sizes());
  weights = weights.masked_fill(is_ignored, 0);
  const Tensor chosen = logarithms.gather(1, safe.unsqueeze(1)).squeeze(1);
  const Tensor loss = chosen.neg().mul(weights).masked_fill(is_ignored, 0);
  const std::string reduction = call.text("reduction", "mean");
  if (reduction == "none") return loss;
  call.require(reduction == "mean" || reduction == "sum", "reduction must be none, mean or sum");
  return reduction == "sum" ? loss.sum() : loss.sum().div(weights.sum());
}

void run_negative_log_likelihood(Call& call) {
  call.require(call.input(0).dim() >= 2, "its input must have classes on axis 1");
  call.result(loss_of(call, raised(call.input(0))).to(call.input(0).scalar_type()));
}

void run_cross_entropy(Call& call) {
  const Tensor& x = call.input(0);
  call.require(x.dim() >= 2, "its input must have classes on axis 1");
  const Tensor logarithms = at::log_softmax(raised(x), 1);
  call.result(loss_of(call, logarithms).to(x.scalar_type()));
  call.result(logarithms.to(x.scalar_type()));
}

}  // namespace

void populate_loss(OperatorTable& table) {
  table.add("NegativeLogLikelihoodLoss", run_negative_log_likelihood);
  table.add("SoftmaxCrossEntropyLoss", run_cross_entropy);
}

}  // namespace exportguard::evaluator
