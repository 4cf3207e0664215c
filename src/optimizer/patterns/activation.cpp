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

/// x (1 + curve(x)) / 2, in any order.
Match match_gelu(const Facts& facts, ir::Node& node) {
  for (Value* x : possible_operands(facts, node)) {
    const Product product = product_of(facts, &node.output(), x);
    const bool is_half = product.factors.size() == 2 && is_about(product.number, 0.5, node.output().dtype());
    if (!is_half || !(product.factors[0] == x || product.factors[1] == x)) continue;
    const Value* curve = summand_beside(facts, product.factors[product.factors[0] == x ? 1 : 0], 1);
    const char* word = curve ? approximation(facts, curve, x) : nullptr;
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
