#include <fmt/format.h>

#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

bool is_square_of(const Facts& facts, const Value* value, const Value* x) {
  if (const ir::Node* product = producer_of(value, "Mul"))
    return product->find_input(0) == x && product->find_input(1) == x;
  const ir::Node* power = producer_of(value, "Pow");
  return power && power->find_input(0) == x && facts.is_number(power->find_input(1), 2);
}

/// The epsilon if `value` is mean(x²) over the last axis, plus a positive number.
std::optional<double> epsilon_of_mean_square(const Facts& facts, const Value* value, const Value& x) {
  const ir::Node* sum = producer_of(value, "Add");
  if (sum == nullptr) return std::nullopt;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto epsilon = facts.number(sum->find_input(i));
    const ir::Node* mean = producer_of(sum->find_input(1 - i), "ReduceMean");
    if (!epsilon || !mean || int_attribute(*mean, "keepdims", 1) != 1) continue;
    const auto axes = facts.ints(mean->find_input(1));
    const bool is_last = axes && axes->size() == 1 && axis_from_start(x, axes->front()) == axis_from_start(x, -1);
    if (is_last && is_square_of(facts, mean->find_input(0), &x)) return epsilon;
  }
  return std::nullopt;
}

/// What is under the root, if `value` is 1 / √y, or √y where that is divided by.
const Value* root_operand(const Value* value, bool divides) {
  if (divides) {
    const ir::Node* root = producer_of(value, "Sqrt");
    return root ? root->find_input(0) : nullptr;
  }
  const ir::Node* inverse = producer_of(value, "Reciprocal");
  const ir::Node* root = inverse ? producer_of(inverse->find_input(0), "Sqrt") : nullptr;
  return root ? root->find_input(0) : nullptr;
}

/// x / √(mean(x²) + ε) over the last axis, whose size is known and not 0.
Match match_plain(const Facts& facts, ir::Node& node) {
  const bool divides = node.op() == "Div";
  for (std::size_t i = 0; i < (divides ? 1U : 2U); ++i) {
    Value* x = node.find_input(i);
    const Value* inside = root_operand(node.find_input(1 - i), divides);
    if (inside == nullptr || x == nullptr || !shape_of(*x) || shape_of(*x)->empty()) continue;
    const auto epsilon = epsilon_of_mean_square(facts, inside, *x);
    if (!epsilon) return Match::no("there is no mean of squares under the root");
    const auto size = dim(*x, -1)->constant();
    if (!size || *size == 0) return Match::no("the size of the axis is not known");
    if (x->dtype() != DType::kFloat32) return Match::no("it is not computed in float32");
    return Match([=, &node, size = *size, epsilon = *epsilon](Rewriter& rewriter) {
      Value& ones = rewriter.constant(ir::Tensor::filled(1, DType::kFloat32, std::vector<std::int64_t>{size}),
                                      fmt::format("ones.f32[{}]", size));
      rewriter.replace(node.output(), rewriter.op("RMSNormalization", {x, &ones}, {{"axis", -1}, {"epsilon", epsilon}},
                                                  node.output().type()));
    });
  }
  return Match::no("no operand is an inverse root");
}

bool is_all_ones(const Facts& facts, const Value* value) {
  const ir::Tensor* tensor = facts.constant(value);
  if (tensor == nullptr || !is_floating(tensor->dtype()) || tensor->numel() == 0 || tensor->numel() > 65536)
    return false;
  for (const double x : tensor->to_doubles()) {
    if (x != 1) return false;
  }
  return true;
}

bool is_unweighted(const Facts& facts, const ir::Node* norm) {
  return norm && has_one_use(norm->output()) && is_all_ones(facts, norm->find_input(1));
}

/// The operator computes in float32 and rounds to the operand's dtype before it multiplies, as these models do.
Match match_narrowed(const Facts& facts, ir::Node& node) {
  const ir::Node* norm = producer_of(&node.input(0), "RMSNormalization");
  if (!is_unweighted(facts, norm)) return Match::no("the operand is no norm without a weight");
  const ir::Node* widening = producer_of(norm->find_input(0), "Cast");
  const bool is_widened = widening && widening->input(0).dtype() == node.output().dtype();
  if (!is_widened || !is_narrow_float(node.output().dtype())) return Match::no("it does not go to float32 and back");
  return Match([=, &node](Rewriter& rewriter) {
    const ir::Tensor& ones = *norm->input(1).initializer();
    Value& narrow = rewriter.constant(ir::Tensor::filled(1, node.output().dtype(), ones.shape()),
                                      fmt::format("ones.{}[{}]", name(node.output().dtype()), ones.shape().front()));
    rewriter.replace(node.output(), rewriter.op("RMSNormalization", {&widening->input(0), &narrow},
                                                {{"axis", -1}, {"epsilon", float_attribute(*norm, "epsilon", 1e-5)}},
                                                node.output().type()));
  });
}

Match match_weighted(const Facts& facts, ir::Node& node) {
  for (std::size_t i = 0; i < 2; ++i) {
    const ir::Node* norm = producer_of(node.find_input(i), "RMSNormalization");
    if (!is_unweighted(facts, norm)) continue;
    Value& weight = node.input(1 - i);
    const bool fits = weight.dtype() == norm->input(0).dtype() && same_shape(weight, norm->input(1));
    if (!fits) return Match::no("the factor is no weight for the last axis");
    return Match([=, &node, &weight](Rewriter& rewriter) {
      rewriter.replace(node.output(), rewriter.op("RMSNormalization", {&norm->input(0), &weight},
                                                  {{"axis", -1}, {"epsilon", float_attribute(*norm, "epsilon", 1e-5)}},
                                                  node.output().type()));
    });
  }
  return Match::no("no operand is a norm without a weight");
}

}  // namespace

void populate_rms_norm(PatternTable& table) {
  table.add({.name = "rms_norm",
             .matches = "x · 1 / √(mean(x²) + ε), or x divided by the root, over the last axis in float32",
             .makes = "`RMSNormalization` with a weight of ones",
             .roots = {"Mul", "Div"},
             .match = match_plain,
             .stage = Stage::kFuse,
             .opset = 23});
  table.add({.name = "rms_norm_float16",
             .matches = "a float16 tensor cast to float32, normalized without a weight and cast back",
             .makes = "`RMSNormalization` of the float16 tensor, which computes in float32",
             .roots = {"Cast"},
             .match = match_narrowed,
             .stage = Stage::kFuse,
             .opset = 23});
  table.add({.name = "rms_norm_weight",
             .matches = "`RMSNormalization` with a weight of ones, times a weight (1 + weight is folded before)",
             .makes = "`RMSNormalization` with that weight",
             .roots = {"Mul"},
             .match = match_weighted,
             .stage = Stage::kFuse,
             .opset = 23});
}

}  // namespace exportguard::optimizer
