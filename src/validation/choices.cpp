#include "validation/choices.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <tuple>

#include "exportguard/validation/comparison.h"

namespace exportguard::validation {
namespace {

using evaluator::Value;

/// An operator that hands out positions along an axis.
struct Chooser {
  std::string_view name;
  std::size_t axis;       ///< the place of that argument
  std::size_t positions;  ///< the output
  bool is_one = false;    ///< one position, where others hand out one for each of several values
};

constexpr std::array kChoosers{
    Chooser{.name = "aten.sort.default", .axis = 1, .positions = 1},
    Chooser{.name = "aten.argsort.default", .axis = 1, .positions = 0},
    Chooser{.name = "aten.topk.default", .axis = 2, .positions = 1},
    Chooser{.name = "aten.kthvalue.default", .axis = 2, .positions = 1, .is_one = true},
    Chooser{.name = "aten.median.dim", .axis = 1, .positions = 1, .is_one = true},
    Chooser{.name = "aten.nanmedian.dim", .axis = 1, .positions = 1, .is_one = true},
    Chooser{.name = "aten.mode.default", .axis = 1, .positions = 1, .is_one = true},
};

const Chooser* find_chooser(const ir::Node& node) {
  if (!node.is_torch()) return nullptr;
  const auto found = std::ranges::find(kChoosers, node.qualified_name(), &Chooser::name);
  return found == kChoosers.end() ? nullptr : &*found;
}

// aten::topk(self, k, dim, largest, sorted)
bool is_unsorted(const ir::Node& node) {
  const bool* sorted =
      node.op() == "topk.default" && node.arguments().size() > 4 ? node.arguments()[4].get_if<bool>() : nullptr;
  return sorted != nullptr && !*sorted;
}

std::int64_t axis_of(const ir::Node& node, std::size_t place) {
  const std::int64_t* axis = node.arguments().size() > place ? node.arguments()[place].get_if<std::int64_t>() : nullptr;
  return axis == nullptr ? -1 : *axis;
}

at::Tensor in_order(const at::Tensor& values, std::int64_t axis) { return std::get<0>(values.sort(axis)); }

bool are_close(const at::Tensor& expected, const at::Tensor& got) {
  const ir::Tensor right{expected};
  return compare(right, ir::Tensor(got), tolerance_for(right.dtype())).agrees();
}

/// Whether `values` can be gathered along the axis.
bool are_places_of(const at::Tensor& positions, const at::Tensor& values, std::int64_t axis) {
  if (positions.dim() != values.dim()) return false;
  for (std::int64_t i = 0; i < values.dim(); ++i) {
    const bool is_along = i == (axis < 0 ? axis + values.dim() : axis);
    if (!is_along && positions.size(i) != values.size(i)) return false;
  }
  return ((positions >= 0) & (positions < values.size(axis))).all().item<bool>();
}

bool are_all_different(const at::Tensor& positions, std::int64_t axis) {
  const at::Tensor ranked = in_order(positions, axis);
  return (ranked.diff(1, axis) != 0).all().item<bool>();
}

}  // namespace

bool leaves_a_choice(const ir::Value& expected) {
  const ir::Node* node = expected.producer();
  const Chooser* chooser = node == nullptr ? nullptr : find_chooser(*node);
  return chooser != nullptr && (expected.output_index() == chooser->positions || is_unsorted(*node));
}

bool is_another_choice(const ir::Value& value, const Value& operand, const Value& expected, const Value& got) {
  const Chooser* chooser = find_chooser(*value.producer());
  const bool are_tensors = operand.find_tensor() != nullptr && expected.find_tensor() != nullptr &&
                           got.find_tensor() != nullptr && expected.tensor().shape() == got.tensor().shape();
  if (chooser == nullptr || !are_tensors || operand.tensor().shape().empty()) return false;
  const std::int64_t axis = axis_of(*value.producer(), chooser->axis);
  const at::Tensor& values = operand.tensor().aten();
  const auto ordered = [&](const at::Tensor& chosen) {
    return is_unsorted(*value.producer()) ? in_order(chosen, axis) : chosen;
  };
  if (value.output_index() != chooser->positions) {
    return are_close(ordered(expected.tensor().aten()), ordered(got.tensor().aten()));
  }

  const bool has_lost_axis = chooser->is_one && expected.tensor().shape().size() < operand.tensor().shape().size();
  const auto positions = [&](const Value& content) {
    const at::Tensor wide = content.tensor().aten().to(at::kLong);
    return has_lost_axis ? wide.unsqueeze(axis) : wide;
  };
  const at::Tensor chosen = positions(got);
  return are_places_of(chosen, values, axis) && are_all_different(chosen, axis) &&
         are_close(ordered(values.gather(axis, positions(expected))), ordered(values.gather(axis, chosen)));
}

}  // namespace exportguard::validation
