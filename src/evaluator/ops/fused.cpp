// Elementwise operators of com.microsoft that an optimizer writes.
#include <ATen/ops/gelu.h>
#include <ATen/ops/softmax.h>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;

Tensor with_bias(const Call& call) { return call.has(1) ? call.input(0).add(call.input(1)) : call.input(0); }

void run_bias_gelu(Call& call) { call.result(at::gelu(with_bias(call), "none")); }
void run_fast_gelu(Call& call) { call.result(at::gelu(with_bias(call), "tanh")); }

void run_bias_softmax(Call& call) {
  const Tensor sum = with_bias(call);
  call.result(at::softmax(sum, call.axis(call.integer("axis", 1), sum.dim())));
}

// A bias over the channels, the last axis, and another picture.
void run_bias_add(Call& call) { call.result(call.input(0).add(call.input(1)).add(call.input(2))); }

}  // namespace

void populate_fused(OperatorTable& table) {
  table.add("com.microsoft::BiasGelu", run_bias_gelu);
  table.add("com.microsoft::FastGelu", run_fast_gelu);
  table.add("com.microsoft::BiasSoftmax", run_bias_softmax);
  table.add("com.microsoft::BiasAdd", run_bias_add);
}

}  // namespace exportguard::evaluator
