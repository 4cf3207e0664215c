#include "optimizer/products.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace exportguard::optimizer {
namespace {

constexpr int kMostLevels = 6;

/// Takes values apart until they are no products, or the one that is left whole.
class Apart {
 public:
  Apart(const Facts& facts, const Value* whole) : facts_(facts), whole_(whole) {}

  void take(Value* value, int level = 0) {
    if (product.factors.size() > Product::kMostFactors) return;
    if (const auto number = facts_.number(value)) {
      product.number *= *number;
      return;
    }
    const ir::Node* node = value->producer();
    const bool is_open = node && value != whole_ && level < kMostLevels && is_floating(value->dtype());
    if (!is_open || !take_node(*node, level + 1)) product.factors.push_back(value);
  }

  Product product;

 private:
  bool take_node(const ir::Node& node, int level) {
    if (!node.domain().empty() || node.input_count() != 2) return false;
    if (node.op() == "Mul") {
      take(&node.input(0), level);
      take(&node.input(1), level);
      return true;
    }
    const auto number = facts_.number(node.find_input(1));
    if (node.op() == "Div" && number && *number != 0) {
      product.number /= *number;
      take(&node.input(0), level);
      return true;
    }
    const bool is_power = node.op() == "Pow" && (number == 2 || number == 3);
    for (int i = 0; is_power && i < static_cast<int>(*number); ++i) take(&node.input(0), level);
    return is_power;
  }

  const Facts& facts_;
  const Value* whole_;
};

}  // namespace

std::optional<double> Product::of(std::vector<const Value*> wanted) const {
  if (wanted.size() != factors.size()) return std::nullopt;
  for (const Value* factor : factors) {
    const auto found = std::ranges::find(wanted, factor);
    if (found == wanted.end()) return std::nullopt;
    wanted.erase(found);
  }
  return number;
}

Product product_of(const Facts& facts, Value* value, const Value* whole) {
  Apart apart(facts, whole);
  if (value != nullptr) apart.take(value);
  return std::move(apart.product);
}

Value* summand_beside(const Facts& facts, const Value* value, double number) {
  const ir::Node* sum = producer_of(value, "Add");
  if (sum == nullptr) return nullptr;
  if (facts.is_number(sum->find_input(0), number)) return sum->find_input(1);
  return facts.is_number(sum->find_input(1), number) ? sum->find_input(0) : nullptr;
}

bool is_scale(double number) {
  return number >= std::numeric_limits<float>::min() && number <= std::numeric_limits<float>::max();
}

bool is_about(double number, double expected, DType dtype) {
  const double precision = dtype == DType::kBFloat16 ? 1e-2 : dtype == DType::kFloat16 ? 2e-3 : 2e-6;
  return std::abs(number - expected) <= precision * std::abs(expected);
}

bool is_same_rounded(double number, double expected, DType dtype) {
  const double unit = dtype == DType::kBFloat16 ? 0x1p-9 : dtype == DType::kFloat16 ? 0x1p-12 : 0x1p-24;
  return std::abs(number - expected) <= 2 * unit * std::abs(expected);
}

}  // namespace exportguard::optimizer
