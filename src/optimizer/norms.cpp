#include "optimizer/norms.h"

#include <algorithm>

#include "optimizer/products.h"

namespace exportguard::optimizer {
namespace {

bool is_square_of(const Facts& facts, const Value* value, const Value* x) {
  if (const ir::Node* product = producer_of(value, "Mul"))
    return product->find_input(0) == x && product->find_input(1) == x;
  const ir::Node* power = producer_of(value, "Pow");
  return power && power->find_input(0) == x && facts.is_number(power->find_input(1), 2) && same_shape(*value, *x);
}

/// What `value` is the mean of over that axis of `of`, with the axis kept; null if the value is something else.
Value* meaned_over(const Facts& facts, Value* value, const Value& of, std::int64_t axis) {
  const auto from_start = axis_from_start(of, axis);
  if (value == nullptr || !from_start) return nullptr;
  const auto reduced = [&](Value* result, std::string_view op, std::int64_t keeps) -> Value* {
    const ir::Node* node = producer_of(result, op);
    const auto axes = node ? facts.ints(node->find_input(1)) : std::nullopt;
    const bool is_axis = axes && axes->size() == 1 && axis_from_start(of, axes->front()) == from_start;
    return is_axis && int_attribute(*node, "keepdims", 1) == keeps ? &node->input(0) : nullptr;
  };
  if (Value* squares = reduced(value, "ReduceMean", 1)) return squares;

  ir::Shape kept = *shape_of(of);
  kept[static_cast<std::size_t>(*from_start)] = ir::Dim(1);
  const ir::Node* back = value->producer();
  const bool puts_back = back && (back->is("", "Unsqueeze") || back->is("", "Reshape")) && shape_of(*value) == kept;
  if (puts_back) return reduced(&back->input(0), "ReduceMean", 0);

  const auto size = dim(of, axis)->constant();
  const Product product = product_of(facts, value);
  const bool is_share = size && product.factors.size() == 1 && product.factors.front() != value &&
                        is_about(product.number * static_cast<double>(*size), 1, DType::kFloat32);
  return is_share && shape_of(*value) == kept ? reduced(product.factors.front(), "ReduceSum", 1) : nullptr;
}

/// The epsilon if `value` is mean(x²) over that axis, plus a number that is not negative.
std::optional<double> epsilon_of_mean_square(const Facts& facts, const Value* value, const Value& x,
                                             std::int64_t axis) {
  const ir::Node* sum = producer_of(value, "Add");
  for (std::size_t i = 0; sum && i < 2; ++i) {
    const auto epsilon = facts.number(sum->find_input(i));
    if (!epsilon || *epsilon < 0) continue;
    const Value* squares = meaned_over(facts, sum->find_input(1 - i), x, axis);
    if (squares && is_square_of(facts, squares, &x)) return epsilon;
  }
  return std::nullopt;
}

/// y of √y.
const Value* under_root(const Facts& facts, const Value* value) {
  if (const ir::Node* root = producer_of(value, "Sqrt")) return root->find_input(0);
  const ir::Node* power = producer_of(value, "Pow");
  return power && facts.is_number(power->find_input(1), 0.5) ? power->find_input(0) : nullptr;
}

/// y of 1 / √y.
const Value* under_inverse_root(const Facts& facts, const Value* value) {
  if (const ir::Node* inverse = producer_of(value, "Reciprocal")) return under_root(facts, inverse->find_input(0));
  const ir::Node* quotient = producer_of(value, "Div");
  if (quotient && facts.is_number(quotient->find_input(0), 1)) return under_root(facts, quotient->find_input(1));
  const ir::Node* power = producer_of(value, "Pow");
  return power && facts.is_number(power->find_input(1), -0.5) ? power->find_input(0) : nullptr;
}

/// 1 / √y, or that times a factor.
struct Scale {
  const Value* inside = nullptr;  ///< y; null if it is something else
  Value* factor = nullptr;        ///< null without one
};

Scale scale_by(const Facts& facts, const Value* value) {
  if (const Value* inside = under_inverse_root(facts, value)) return {inside, nullptr};
  const ir::Node* product = producer_of(value, "Mul");
  for (std::size_t i = 0; product && has_one_use(*value) && i < 2; ++i) {
    if (const Value* inside = under_inverse_root(facts, product->find_input(i)))
      return {inside, &product->input(1 - i)};
  }
  return {};
}

}  // namespace

std::optional<RootMeanSquare> root_mean_square_of(const Facts& facts, const ir::Node& node, const char*& reason,
                                                  std::int64_t axis) {
  const bool divides = node.op() == "Div";
  reason = "no operand is an inverse root";
  for (std::size_t i = 0; i < (divides ? 1U : 2U); ++i) {
    Value* x = node.find_input(i);
    const Value* other = node.find_input(1 - i);
    const Scale scale = divides ? Scale{under_root(facts, other), nullptr} : scale_by(facts, other);
    if (scale.inside == nullptr || x == nullptr || !axis_from_start(*x, axis)) continue;
    const auto epsilon = epsilon_of_mean_square(facts, scale.inside, *x, axis);
    const auto size = dim(*x, axis)->constant();
    reason = !epsilon                         ? "there is no mean of squares under the root"
             : !size || *size == 0            ? "the size of the axis is not known"
             : !same_shape(*x, node.output()) ? "the epsilon or a factor stretches the result"
             : x->dtype() != DType::kFloat32  ? "it is not computed in float32"
                                              : nullptr;
    return reason ? std::nullopt : std::optional(RootMeanSquare{x, *epsilon, *size, scale.factor});
  }
  return std::nullopt;
}

Value* centered(const Facts& facts, const Value* value, std::int64_t axis) {
  const ir::Node* difference = producer_of(value, "Sub");
  if (difference == nullptr) return nullptr;
  Value& x = difference->input(0);
  return meaned_over(facts, difference->find_input(1), x, axis) == &x ? &x : nullptr;
}

bool is_all_ones(const Facts& facts, const Value* value) {
  const ir::Tensor* tensor = facts.constant(value);
  if (tensor == nullptr || !is_floating(tensor->dtype()) || tensor->numel() == 0 || tensor->numel() > 65536)
    return false;
  const std::vector<double> elements = tensor->to_doubles();
  return std::ranges::all_of(elements, [](double x) { return x == 1; });
}

}  // namespace exportguard::optimizer
