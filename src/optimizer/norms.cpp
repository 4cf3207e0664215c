#include "optimizer/norms.h"

#include <algorithm>

namespace exportguard::optimizer {
namespace {

bool is_square_of(const Facts& facts, const Value* value, const Value* x) {
  if (const ir::Node* product = producer_of(value, "Mul"))
    return product->find_input(0) == x && product->find_input(1) == x;
  const ir::Node* power = producer_of(value, "Pow");
  return power && power->find_input(0) == x && facts.is_number(power->find_input(1), 2) && same_shape(*value, *x);
}

/// The mean over the last axis of `of`, with that axis kept; null if the value is something else.
ir::Node* mean_over_last(const Facts& facts, const Value* value, const Value& of) {
  ir::Node* mean = producer_of(value, "ReduceMean");
  if (!mean || int_attribute(*mean, "keepdims", 1) != 1) return nullptr;
  const auto axes = facts.ints(mean->find_input(1));
  const bool is_last = axes && axes->size() == 1 && axis_from_start(of, axes->front()) == axis_from_start(of, -1);
  return is_last && axis_from_start(of, -1) ? mean : nullptr;
}

/// The epsilon if `value` is mean(x²) over the last axis, plus a number that is not negative.
std::optional<double> epsilon_of_mean_square(const Facts& facts, const Value* value, const Value& x) {
  const ir::Node* sum = producer_of(value, "Add");
  for (std::size_t i = 0; sum && i < 2; ++i) {
    const auto epsilon = facts.number(sum->find_input(i));
    const ir::Node* mean = mean_over_last(facts, sum->find_input(1 - i), x);
    if (epsilon && *epsilon >= 0 && mean && is_square_of(facts, mean->find_input(0), &x)) return epsilon;
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

}  // namespace

std::optional<RootMeanSquare> root_mean_square_of(const Facts& facts, const ir::Node& node, const char*& reason) {
  const bool divides = node.op() == "Div";
  reason = "no operand is an inverse root";
  for (std::size_t i = 0; i < (divides ? 1U : 2U); ++i) {
    Value* x = node.find_input(i);
    const Value* inside = root_operand(node.find_input(1 - i), divides);
    if (inside == nullptr || x == nullptr || !shape_of(*x) || shape_of(*x)->empty()) continue;
    const auto epsilon = epsilon_of_mean_square(facts, inside, *x);
    const auto size = dim(*x, -1)->constant();
    reason = !epsilon                         ? "there is no mean of squares under the root"
             : !size || *size == 0            ? "the size of the axis is not known"
             : !same_shape(*x, node.output()) ? "the epsilon stretches the result"
             : x->dtype() != DType::kFloat32  ? "it is not computed in float32"
                                              : nullptr;
    return reason ? std::nullopt : std::optional(RootMeanSquare{x, *epsilon, *size});
  }
  return std::nullopt;
}

Value* centered(const Facts& facts, const Value* value) {
  const ir::Node* difference = producer_of(value, "Sub");
  if (difference == nullptr) return nullptr;
  Value& x = difference->input(0);
  const ir::Node* mean = mean_over_last(facts, difference->find_input(1), x);
  return mean && mean->find_input(0) == &x ? &x : nullptr;
}

bool is_all_ones(const Facts& facts, const Value* value) {
  const ir::Tensor* tensor = facts.constant(value);
  if (tensor == nullptr || !is_floating(tensor->dtype()) || tensor->numel() == 0 || tensor->numel() > 65536)
    return false;
  const std::vector<double> elements = tensor->to_doubles();
  return std::ranges::all_of(elements, [](double x) { return x == 1; });
}

}  // namespace exportguard::optimizer
