#include "optimizer/bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace exportguard::optimizer {
namespace {

using MaybeBounds = std::optional<Bounds>;

constexpr int kMostVisits = 64;  // of nodes, for one question
constexpr std::int64_t kMostElements = std::int64_t{1} << 16;

/// `visits` are those that are left.
MaybeBounds bounds_at(const Facts& facts, const Value* value, int& visits);

MaybeBounds bounds_of_constant(const ir::Tensor& tensor) {
  const bool is_numeric = tensor.dtype() != DType::kString && !is_complex(tensor.dtype());
  if (!is_numeric || tensor.numel() == 0 || tensor.numel() > kMostElements) return std::nullopt;
  Bounds bounds{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const double x : tensor.to_doubles()) {
    if (!std::isfinite(x)) return std::nullopt;
    bounds = {std::min(bounds.low, x), std::max(bounds.high, x)};
  }
  return bounds;
}

MaybeBounds around(const MaybeBounds& a, const MaybeBounds& b) {
  if (!a || !b) return std::nullopt;
  return Bounds{std::min(a->low, b->low), std::max(a->high, b->high)};
}

/// One of a node's elements, or its operand's.
MaybeBounds bounds_of_all(const Facts& facts, const ir::Node& node, std::size_t first, int& visits) {
  MaybeBounds all = bounds_at(facts, node.find_input(first), visits);
  for (std::size_t i = first + 1; i < node.input_count(); ++i)
    all = around(all, bounds_at(facts, node.find_input(i), visits));
  return all;
}

MaybeBounds bounds_of_product(const MaybeBounds& a, const MaybeBounds& b) {
  if (!a || !b) return std::nullopt;
  const auto [low, high] = std::minmax({a->low * b->low, a->low * b->high, a->high * b->low, a->high * b->high});
  return Bounds{low, high};
}

bool is_one_of(const std::string& op, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, op) != names.end();
}

/// The elements of the first operand in other places.
bool moves_elements(const ir::Node& node) {
  return is_one_of(node.op(), {"Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Expand", "Tile",
                               "Slice", "Gather", "Split", "GatherElements"});
}

MaybeBounds bounds_of_arithmetic(const Facts& facts, const ir::Node& node, int& visits) {
  const MaybeBounds a = bounds_at(facts, node.find_input(0), visits);
  const MaybeBounds b = a ? bounds_at(facts, node.find_input(1), visits) : std::nullopt;
  if (!a || !b) return std::nullopt;
  if (node.op() == "Add") return Bounds{a->low + b->low, a->high + b->high};
  if (node.op() == "Sub") return Bounds{a->low - b->high, a->high - b->low};
  return bounds_of_product(a, b);
}

/// Every number that an integer dtype has.
MaybeBounds bounds_of_integers(DType dtype) {
  if (!is_integral(dtype)) return std::nullopt;
  const int width = bit_width(dtype);
  return is_unsigned(dtype) ? Bounds{0, std::ldexp(1.0, width)}
                            : Bounds{-std::ldexp(1.0, width - 1), std::ldexp(1.0, width - 1)};
}

MaybeBounds bounds_of_cast(const Facts& facts, const ir::Node& node, int& visits) {
  MaybeBounds from = bounds_at(facts, node.find_input(0), visits);
  if (!from) from = bounds_of_integers(node.input(0).dtype());
  if (node.output().dtype() == DType::kBool) return Bounds{0, 1};
  return from && is_finite_in(*from, node.output().dtype()) ? from : std::nullopt;
}

/// Clip to two numbers, whatever is clipped.
MaybeBounds bounds_of_clip(const Facts& facts, const ir::Node& node) {
  const auto low = facts.number(node.find_input(1));
  const auto high = facts.number(node.find_input(2));
  const bool is_known = low && high && std::isfinite(*low) && std::isfinite(*high);
  return is_known ? MaybeBounds(Bounds{std::min(*low, *high), *high}) : std::nullopt;
}

/// The larger or the smaller one of several.
MaybeBounds bounds_of_extreme(const Facts& facts, const ir::Node& node, int& visits) {
  MaybeBounds all = bounds_at(facts, node.find_input(0), visits);
  for (std::size_t i = 1; all && i < node.input_count(); ++i) {
    const MaybeBounds other = bounds_at(facts, node.find_input(i), visits);
    if (!other) return std::nullopt;
    all = node.op() == "Max" ? Bounds{std::max(all->low, other->low), std::max(all->high, other->high)}
                             : Bounds{std::min(all->low, other->low), std::min(all->high, other->high)};
  }
  return all;
}

MaybeBounds bounds_of_node(const Facts& facts, const ir::Node& node, int& visits) {
  if (!node.domain().empty()) return std::nullopt;
  if (moves_elements(node)) return bounds_at(facts, node.find_input(0), visits);
  if (node.op() == "Concat") return bounds_of_all(facts, node, 0, visits);
  if (node.op() == "Where") return bounds_of_all(facts, node, 1, visits);
  if (node.op() == "Cast") return bounds_of_cast(facts, node, visits);
  if (node.op() == "Clip") return bounds_of_clip(facts, node);
  if (is_one_of(node.op(), {"Max", "Min"})) return bounds_of_extreme(facts, node, visits);
  if (is_one_of(node.op(), {"Sigmoid", "Softmax"})) return Bounds{0, 1};
  if (is_one_of(node.op(), {"Tanh", "Sin", "Cos", "Erf", "Sign"})) return Bounds{-1, 1};
  const bool is_float = is_floating(node.output().dtype());
  if (is_float && is_one_of(node.op(), {"Add", "Sub", "Mul"})) {
    const MaybeBounds found = bounds_of_arithmetic(facts, node, visits);
    return found && is_finite_in(*found, node.output().dtype()) ? found : std::nullopt;
  }
  if (is_float && node.op() == "Neg") {
    const MaybeBounds x = bounds_at(facts, node.find_input(0), visits);
    return x ? MaybeBounds(Bounds{-x->high, -x->low}) : std::nullopt;
  }
  return std::nullopt;
}

/// A tensor that is one number everywhere, whatever its sizes.
MaybeBounds bounds_of_filled(const ir::Node& node) {
  const ir::Attribute* content = node.find_attribute("value");
  const auto* tensor = content ? std::get_if<ir::Tensor>(content) : nullptr;
  if (content == nullptr) return Bounds{0, 0};
  return tensor ? bounds_of_constant(*tensor) : std::nullopt;
}

MaybeBounds bounds_at(const Facts& facts, const Value* value, int& visits) {
  if (value == nullptr || --visits < 0) return std::nullopt;
  if (value->dtype() == DType::kBool) return Bounds{0, 1};
  if (const ir::Tensor* tensor = facts.constant(value)) return bounds_of_constant(*tensor);
  const ir::Node* node = value->producer();
  if (node == nullptr) return std::nullopt;
  return node->is("", "ConstantOfShape") ? bounds_of_filled(*node) : bounds_of_node(facts, *node, visits);
}

double largest(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 65504;
    case DType::kBFloat16:
      return 3.3895313892515355e38;
    case DType::kFloat32:
      return std::numeric_limits<float>::max();
    case DType::kFloat64:
      return std::numeric_limits<double>::max();
    default:
      return is_integral(dtype) ? std::ldexp(1.0, bit_width(dtype) - 2) : 0;
  }
}

/// Half of the distance between the largest number and the next one below it.
double half_step(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 16;
    case DType::kBFloat16:
      return std::ldexp(1.0, 119);
    case DType::kFloat32:
      return std::ldexp(1.0, 103);
    default:
      return 0;
  }
}

}  // namespace

std::optional<Bounds> bounds_of(const Facts& facts, const Value* value) {
  int visits = kMostVisits;
  return bounds_at(facts, value, visits);
}

bool is_finite_in(const Bounds& bounds, DType dtype) {
  const double limit = largest(dtype) + half_step(dtype) / 2;
  return std::max(std::abs(bounds.low), std::abs(bounds.high)) <= limit;
}

}  // namespace exportguard::optimizer
