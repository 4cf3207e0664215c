#include <algorithm>
#include <cmath>

#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

constexpr int kMostVisits = 32;  // of nodes, for one question
constexpr std::int64_t kMostElements = std::int64_t{1} << 16;

bool is_one_of(const ir::Node& node, std::initializer_list<std::string_view> names) {
  return node.domain().empty() && std::ranges::find(names, node.op()) != names.end();
}

bool has_no_nan(const ir::Tensor& tensor) {
  const bool is_numeric = tensor.dtype() != DType::kString && !is_complex(tensor.dtype());
  if (!is_numeric || tensor.numel() > kMostElements) return false;
  return std::ranges::none_of(tensor.to_doubles(), [](double x) { return std::isnan(x); });
}

/// A Cast to another float, of 8 bits, makes NaN of what is too large.
bool keeps_infinities(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

/// `visits` are those that are left.
bool is_never_nan(const Facts& facts, const Value* value, int& visits);

bool are_never_nan(const Facts& facts, const ir::Node& node, std::size_t first, int& visits) {
  for (std::size_t i = first; i < node.input_count(); ++i) {
    if (!is_never_nan(facts, node.find_input(i), visits)) return false;
  }
  return true;
}

bool is_never_nan(const Facts& facts, const Value* value, int& visits) {
  if (value == nullptr || --visits < 0) return false;
  if (value->dtype() == DType::kBool || is_integral(value->dtype())) return true;
  if (const ir::Tensor* tensor = facts.constant(value)) return has_no_nan(*tensor);
  const ir::Node* node = value->producer();
  if (node == nullptr) return false;
  if (is_one_of(*node, {"ConstantOfShape"})) {
    const ir::Attribute* content = node->find_attribute("value");
    const auto* tensor = content ? std::get_if<ir::Tensor>(content) : nullptr;
    return content == nullptr || (tensor && has_no_nan(*tensor));
  }
  if (is_one_of(*node, {"Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Expand", "Tile",
                        "Slice", "Gather", "Split", "GatherElements", "Abs", "Neg", "Relu", "Sigmoid", "Tanh"}))
    return is_never_nan(facts, node->find_input(0), visits);
  if (is_one_of(*node, {"Cast"}))
    return keeps_infinities(value->dtype()) && is_never_nan(facts, &node->input(0), visits);
  if (is_one_of(*node, {"Where"})) return are_never_nan(facts, *node, 1, visits);
  if (is_one_of(*node, {"Concat", "Max", "Min"})) return are_never_nan(facts, *node, 0, visits);
  return false;
}

/// The tensor whose NaNs are looked for, behind what gathers the flags.
const Value* searched(const Value* flags) {
  for (int steps = 0; steps < 4 && flags && flags->producer(); ++steps) {
    const ir::Node& node = *flags->producer();
    if (is_one_of(node, {"IsNaN"})) return node.find_input(0);
    if (!is_one_of(node, {"Cast", "ReduceMax", "MaxPool", "Identity"}) || &node.output(0) != flags) return nullptr;
    flags = node.find_input(0);
  }
  return nullptr;
}

/// Without a flag for NaN, a reduction or a pool finds none; over nothing, ReduceMax of flags that are numbers gives
/// the lowest number of the dtype, which is not 0 in all of them: flags of 8 bits without a sign and of bools give 0.
bool finds_nothing_in_nothing(const Value* flags) {
  for (const ir::Node* node = flags->producer(); node && !node->is("", "IsNaN"); node = node->input(0).producer()) {
    const DType dtype = node->is("", "ReduceMax") ? node->input(0).dtype() : DType::kBool;
    if (dtype != DType::kBool && !is_unsigned(dtype)) return false;
  }
  return true;
}

Match match_never_nan(const Facts& facts, ir::Node& node) {
  const auto number = facts.number(node.find_input(1));
  const Value* x = searched(node.find_input(0));
  if (x == nullptr || !number || !std::isnan(*number)) return Match::no("it does not put NaN where NaN was found");
  int visits = kMostVisits;
  if (!is_never_nan(facts, x, visits)) return Match::no("the tensor may have NaN");
  if (!finds_nothing_in_nothing(node.find_input(0))) return Match::no("a reduction of nothing is no number 0");
  Value& other = node.input(2);
  if (!same_shape(other, node.output())) return Match::no("the other numbers are stretched");
  return Match([&node, &other](Rewriter& rewriter) { rewriter.replace(node.output(), other); });
}

}  // namespace

void populate_never_nan(PatternTable& table) {
  table.add({.name = "never_nan",
             .matches = "`Where` that puts NaN where one was found, in a tensor of constants, flags and integers that "
                        "has none",
             .makes = "the other numbers",
             .roots = {"Where"},
             .match = match_never_nan});
}

}  // namespace exportguard::optimizer
