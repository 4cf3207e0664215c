#include "exportguard/optimizer/facts.h"

#include <algorithm>
#include <limits>

namespace exportguard::optimizer {
namespace {

using Sizes = std::vector<SymExpr>;
using MaybeSizes = std::optional<Sizes>;

constexpr std::int64_t kMostElements = 64;

bool is_listed(const ir::Tensor& tensor) {
  return (is_integral(tensor.dtype()) || tensor.dtype() == DType::kBool) && tensor.numel() <= kMostElements;
}

MaybeSizes sizes_of_shape(const ir::Node& node) {
  const auto& shape = shape_of(node.input(0));
  if (!shape) return std::nullopt;
  const auto rank = static_cast<std::int64_t>(shape->size());
  const auto clamped = [&](std::int64_t i) { return std::clamp<std::int64_t>(i < 0 ? i + rank : i, 0, rank); };
  const std::int64_t start = clamped(int_attribute(node, "start", 0));
  const std::int64_t end = clamped(int_attribute(node, "end", rank));
  return end <= start ? Sizes{} : Sizes(shape->begin() + start, shape->begin() + end);
}

MaybeSizes sizes_of_concat(const Facts& facts, const ir::Node& node) {
  Sizes all;
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    const MaybeSizes& part = facts.sizes(node.find_input(i));
    if (!part) return std::nullopt;
    all.insert(all.end(), part->begin(), part->end());
  }
  return all;
}

MaybeSizes sizes_of_gather(const Facts& facts, const ir::Node& node) {
  const MaybeSizes& from = facts.sizes(node.find_input(0));
  const auto indices = facts.ints(node.find_input(1));
  if (!from || !indices || int_attribute(node, "axis", 0) != 0) return std::nullopt;
  Sizes taken;
  const auto count = static_cast<std::int64_t>(from->size());
  for (const std::int64_t index : *indices) {
    const std::int64_t at = index < 0 ? index + count : index;
    if (at < 0 || at >= count) return std::nullopt;
    taken.push_back((*from)[static_cast<std::size_t>(at)]);
  }
  return taken;
}

MaybeSizes sizes_of_slice(const Facts& facts, const ir::Node& node) {
  const MaybeSizes& from = facts.sizes(node.find_input(0));
  const auto start = facts.number(node.find_input(1));
  const auto end = facts.number(node.find_input(2));
  const bool is_plain = node.input_count() <= 4 || facts.is_number(node.find_input(4), 1);
  if (!from || !start || !end || !is_plain) return std::nullopt;
  const auto count = static_cast<double>(from->size());
  const auto clamped = [&](double i) {
    return static_cast<std::ptrdiff_t>(std::clamp(i < 0 ? i + count : i, 0., count));
  };
  const std::ptrdiff_t first = clamped(*start);
  return Sizes(from->begin() + first, from->begin() + std::max(first, clamped(*end)));
}

/// Elementwise over lists of one length, or a list and one number.
MaybeSizes sizes_of_arithmetic(const Facts& facts, const ir::Node& node) {
  const MaybeSizes& a = facts.sizes(node.find_input(0));
  const MaybeSizes& b = facts.sizes(node.find_input(1));
  const bool wraps_late = node.output().dtype() == DType::kInt64;  // narrower integers would be taken modulo their size
  if (!a || !b || a->empty() || b->empty() || !wraps_late) return std::nullopt;
  const std::size_t count = std::max(a->size(), b->size());
  const bool fits = (a->size() == count || a->size() == 1) && (b->size() == count || b->size() == 1);
  if (!fits) return std::nullopt;
  Sizes result;
  for (std::size_t i = 0; i < count; ++i) {
    const SymExpr& left = (*a)[a->size() == 1 ? 0 : i];
    const SymExpr& right = (*b)[b->size() == 1 ? 0 : i];
    if (node.op() == "Add") result.push_back(left + right);
    if (node.op() == "Sub") result.push_back(left - right);
    if (node.op() == "Mul") result.push_back(left * right);
  }
  return result;
}

bool keeps_elements(const ir::Node& node) {
  static constexpr std::string_view kOperators[] = {"Squeeze", "Unsqueeze", "Reshape", "Identity", "Flatten"};
  return std::ranges::find(kOperators, node.op()) != std::end(kOperators);
}

MaybeSizes sizes_of_node(const Facts& facts, const ir::Node& node) {
  if (!node.domain().empty()) return std::nullopt;
  if (node.op() == "Shape") return sizes_of_shape(node);
  if (node.op() == "Concat") return sizes_of_concat(facts, node);
  if (node.op() == "Gather") return sizes_of_gather(facts, node);
  if (node.op() == "Slice") return sizes_of_slice(facts, node);
  if (node.op() == "Add" || node.op() == "Sub" || node.op() == "Mul") {
    return unless_overflow([&] { return sizes_of_arithmetic(facts, node); });
  }
  if (keeps_elements(node)) return facts.sizes(node.find_input(0));
  const bool widens = node.op() == "Cast" && node.output().dtype() == DType::kInt64;
  return widens ? facts.sizes(node.find_input(0)) : std::nullopt;
}

bool is_list_of_ints(const Value& value) {
  const auto rank = value.type().rank();
  return is_integral(value.dtype()) && rank && *rank <= 1;
}

}  // namespace

const ir::Tensor* Facts::constant(const Value* value) const {
  if (value == nullptr) return nullptr;
  if (value->initializer() != nullptr) return value->initializer();
  const ir::Node* node = producer_of(value, "Constant");
  const ir::Attribute* content = node ? node->find_attribute("value") : nullptr;
  return content ? std::get_if<ir::Tensor>(content) : nullptr;
}

std::optional<std::vector<std::int64_t>> Facts::ints(const Value* value) const {
  const ir::Tensor* tensor = constant(value);
  return tensor && is_listed(*tensor) ? std::optional(tensor->to_ints()) : std::nullopt;
}

std::optional<double> Facts::number(const Value* value) const {
  const ir::Tensor* tensor = constant(value);
  const bool is_one =
      tensor && tensor->numel() == 1 && tensor->dtype() != DType::kString && !is_complex(tensor->dtype());
  return is_one ? std::optional(tensor->to_doubles().front()) : std::nullopt;
}

std::optional<Sizes> Facts::computed_sizes(const Value* value) const {
  if (const auto numbers = ints(value)) return Sizes(numbers->begin(), numbers->end());
  if (value->type().value) return Sizes{*value->type().value};
  return value->producer() ? sizes_of_node(*this, *value->producer()) : std::nullopt;
}

const std::optional<Sizes>& Facts::sizes(const Value* value) const {
  static const std::optional<Sizes> kUnknown;
  if (value == nullptr || !is_list_of_ints(*value)) return kUnknown;
  if (const auto known = sizes_.find(value); known != sizes_.end()) return known->second;
  std::optional<Sizes> computed = computed_sizes(value);
  return sizes_.emplace(value, std::move(computed)).first->second;
}

// ------------------------------------------------------------------------------------------------ nodes

ir::Node* producer_of(const Value* value, std::string_view op) {
  ir::Node* node = value ? value->producer() : nullptr;
  return node && node->is("", op) ? node : nullptr;
}

std::int64_t int_attribute(const ir::Node& node, std::string_view name, std::int64_t fallback) {
  const ir::Attribute* attribute = node.find_attribute(name);
  const auto* number = attribute ? std::get_if<std::int64_t>(attribute) : nullptr;
  return number ? *number : fallback;
}

double float_attribute(const ir::Node& node, std::string_view name, double fallback) {
  const ir::Attribute* attribute = node.find_attribute(name);
  const auto* number = attribute ? std::get_if<double>(attribute) : nullptr;
  return number ? *number : fallback;
}

const std::vector<std::int64_t>* find_ints_attribute(const ir::Node& node, std::string_view name) {
  const ir::Attribute* attribute = node.find_attribute(name);
  return attribute ? std::get_if<std::vector<std::int64_t>>(attribute) : nullptr;
}

std::vector<ir::NamedAttribute> attributes_of(const ir::Node& node) {
  std::vector<ir::NamedAttribute> attributes;
  for (const auto& [name, value] : node.attributes()) {
    std::visit(
        [&, &key = name](const auto& content) {
          using Content = std::decay_t<decltype(content)>;
          if constexpr (!std::is_same_v<Content, std::unique_ptr<ir::Graph>>) attributes.emplace_back(key, content);
        },
        value);
  }
  return attributes;
}

Value* other_operand(const ir::Node& node, const Value* operand) {
  if (node.input_count() != 2) return nullptr;
  if (node.find_input(0) == operand) return node.find_input(1);
  return node.find_input(1) == operand ? node.find_input(0) : nullptr;
}

// ------------------------------------------------------------------------------------------------ types

bool same_shape(const Value& a, const Value& b) { return shape_of(a) && shape_of(a) == shape_of(b); }

std::optional<std::int64_t> axis_from_start(const Value& value, std::int64_t axis) {
  const auto& shape = shape_of(value);
  if (!shape) return std::nullopt;
  const auto rank = static_cast<std::int64_t>(shape->size());
  const std::int64_t from = axis < 0 ? axis + rank : axis;
  return from >= 0 && from < rank ? std::optional(from) : std::nullopt;
}

std::optional<ir::Dim> dim(const Value& value, std::int64_t axis) {
  const auto from = axis_from_start(value, axis);
  return from ? std::optional((*shape_of(value))[static_cast<std::size_t>(*from)]) : std::nullopt;
}

}  // namespace exportguard::optimizer
