#include <cmath>
#include <numbers>

#include "exportguard/optimizer/rewriter.h"
#include "optimizer/products.h"

namespace exportguard::optimizer {
namespace {

bool is_fusible(DType dtype) { return dtype == DType::kFloat32 || is_narrow_float(dtype); }

// ------------------------------------------------------------------------------------------------ gelu

/// √(2/π) (x + 0.044715 x³), also as √(2/π) x (1 + 0.044715 x²).
bool is_inside_of_tanh(const Facts& facts, Value* value, const Value* x) {
  const Product product = product_of(facts, value, x);
  const DType dtype = value->dtype();
  const auto is_small_power = [&](Value* power, const std::vector<const Value*>& factors) {
    const auto number = product_of(facts, power, x).of(factors);
    return number && is_about(*number, 0.044715, dtype);
  };
  if (!is_about(product.number, std::sqrt(2 / std::numbers::pi), dtype)) return false;
  if (product.factors.size() == 1) {
    const ir::Node* sum = producer_of(product.factors.front(), "Add");
    Value* cube = sum ? other_operand(*sum, x) : nullptr;
    return cube && is_small_power(cube, {x, x, x});
  }
  if (product.factors.size() != 2 || !(product.factors[0] == x || product.factors[1] == x)) return false;
  Value* square = summand_beside(facts, product.factors[product.factors[0] == x ? 1 : 0], 1);
  return square && is_small_power(square, {x, x});
}

/// The word for the operator's attribute if the value is the curve of a Gelu of x, between -1 and 1.
const char* approximation(const Facts& facts, const Value* curve, const Value* x) {
  if (const ir::Node* tanh = producer_of(curve, "Tanh"))
    return is_inside_of_tanh(facts, tanh->find_input(0), x) ? "tanh" : nullptr;
  const ir::Node* erf = producer_of(curve, "Erf");
  const auto number = erf ? product_of(facts, erf->find_input(0), x).of({x}) : std::nullopt;
  return number && is_about(*number, 1 / std::numbers::sqrt2, x->dtype()) ? "none" : nullptr;
}

/// What the product may be a Gelu of: its operands and theirs, but for numbers.
std::vector<Value*> possible_operands(const Facts& facts, const ir::Node& node) {
  std::vector<Value*> found;
  const auto add_operands_of = [&](const ir::Node& factor) {
    for (std::size_t i = 0; i < factor.input_count(); ++i) {
      if (!facts.number(factor.find_input(i))) found.push_back(factor.find_input(i));
    }
  };
  add_operands_of(node);
  const std::vector<Value*> direct = found;
  for (const Value* value : direct) {
    const bool is_product = producer_of(value, "Mul") || producer_of(value, "Div");
    if (is_product) add_operands_of(*value->producer());
  }
  return found;
}

/// A sum s (1 + curve), with s written out as its first summand.
struct Curve {
  const Value* value = nullptr;
  double number = 0;  ///< s
};

std::optional<Curve> curve_of(const Facts& facts, const Value* value) {
  const ir::Node* sum = producer_of(value, "Add");
  for (std::size_t i = 0; sum && i < 2; ++i) {
    const auto number = facts.number(sum->find_input(i));
    const Product product = product_of(facts, sum->find_input(1 - i));
    if (number && *number > 0 && product.factors.size() == 1 &&
        is_same_rounded(product.number, *number, value->dtype()))
      return Curve{product.factors.front(), *number};
  }
  return std::nullopt;
}

/// x (1 + curve(x)) / 2, in any order.
Match match_gelu(const Facts& facts, ir::Node& node) {
  for (Value* x : possible_operands(facts, node)) {
    const Product product = product_of(facts, &node.output(), x);
    if (product.factors.size() != 2 || !(product.factors[0] == x || product.factors[1] == x)) continue;
    const auto curve = curve_of(facts, product.factors[product.factors[0] == x ? 1 : 0]);
    const bool is_half = curve && is_about(product.number * curve->number, 0.5, node.output().dtype());
    const char* word = is_half ? approximation(facts, curve->value, x) : nullptr;
    if (word == nullptr) continue;
    if (!is_fusible(x->dtype()) || !same_shape(*x, node.output())) return Match::no("the dtype has no kernel");
    return Match([=, &node](Rewriter& rewriter) {
      rewriter.replace(node.output(),
                       rewriter.op("Gelu", {x}, {{"approximate", std::string(word)}}, node.output().type()));
    });
  }
  return Match::no("it is no half of x times 1 plus erf or tanh of x");
}

}  // namespace

void populate_activation(PatternTable& table) {
  table.add(
      {.name = "gelu",
       .matches = "x (1 + erf(x / √2)) / 2, or with the tanh of √(2/π) (x + 0.044715 x³), the factors in any order",
       .makes = "`Gelu`",
       .roots = {"Mul", "Div"},
       .match = match_gelu,
       .stage = Stage::kFuse,
       .opset = 20});
}

}  // namespace exportguard::optimizer
