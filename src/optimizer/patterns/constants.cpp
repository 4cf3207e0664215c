#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "exportguard/evaluator/evaluator.h"
#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

constexpr std::int64_t kMostRead = std::int64_t{1} << 16;       // elements of an operand
constexpr std::int64_t kMostStretched = std::int64_t{1} << 12;  // elements made of fewer
constexpr std::size_t kMostBytes = std::size_t{1} << 19;        // of all results

bool is_one_of(const std::string& op, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, op) != names.end();
}

bool has_kernel(DType dtype) {
  return is_floating(dtype) ? bit_width(dtype) >= 16
                            : (is_integral(dtype) && bit_width(dtype) >= 8) || dtype == DType::kBool;
}

/// These read a part of what they are given.
bool reads_a_part(const ir::Node& node) { return is_one_of(node.op(), {"Gather", "Slice", "Shape", "Size"}); }

std::int64_t elements_of(const Facts& facts, const ir::Node& node) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    if (node.find_input(i)) count += facts.constant(node.find_input(i))->numel();
  }
  return count;
}

bool has_constant_operands(const Facts& facts, const ir::Node& node) {
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    if (node.find_input(i) == nullptr) continue;
    const ir::Tensor* tensor = facts.constant(node.find_input(i));
    if (tensor == nullptr || !has_kernel(tensor->dtype())) return false;
    if (tensor->numel() > kMostRead && !reads_a_part(node)) return false;
  }
  return true;
}

/// From floats to integers ONNX leaves open what does not fit.
bool rounds_freely(const Facts& facts, const ir::Node& node) {
  const ir::Tensor* from = node.op() == "Cast" ? facts.constant(node.find_input(0)) : nullptr;
  return from != nullptr && is_floating(from->dtype()) && is_integral(node.output().dtype());
}

/// ONNX wants [0, n] of a single number, runtimes give [1, n].
bool has_open_shape(const Facts& facts, const ir::Node& node) {
  const ir::Tensor* of = node.op() == "NonZero" ? facts.constant(node.find_input(0)) : nullptr;
  return of != nullptr && of->shape().empty();
}

/// Backwards to beyond the end: nothing for ONNX, and all of the axis for onnxruntime.
bool ends_beyond_all(const Facts& facts, const ir::Node& node) {
  const auto ends = facts.ints(node.find_input(2)), steps = facts.ints(node.find_input(4));
  for (std::size_t i = 0; ends && steps && i < steps->size() && i < ends->size(); ++i) {
    if ((*steps)[i] < 0 && (*ends)[i] >= std::numeric_limits<std::int32_t>::max()) return true;
  }
  return false;
}

/// Kernels of runtimes differ in what they make of NaN, infinite numbers and -0, but for those that move numbers or
/// compute one of each.
bool has_settled_result(const Facts& facts, const ir::Node& node) {
  static constexpr std::string_view kSettled[] = {"Abs",
                                                  "Add",
                                                  "And",
                                                  "Cast",
                                                  "CastLike",
                                                  "Ceil",
                                                  "Concat",
                                                  "ConstantOfShape",
                                                  "Cos",
                                                  "Div",
                                                  "Equal",
                                                  "Erf",
                                                  "Exp",
                                                  "Expand",
                                                  "Flatten",
                                                  "Floor",
                                                  "Gather",
                                                  "GatherElements",
                                                  "GatherND",
                                                  "Greater",
                                                  "GreaterOrEqual",
                                                  "IsInf",
                                                  "IsNaN",
                                                  "Less",
                                                  "LessOrEqual",
                                                  "Log",
                                                  "Mul",
                                                  "Neg",
                                                  "Not",
                                                  "Or",
                                                  "Pad",
                                                  "Range",
                                                  "Reciprocal",
                                                  "Reshape",
                                                  "Shape",
                                                  "Sigmoid",
                                                  "Sin",
                                                  "Size",
                                                  "Slice",
                                                  "Split",
                                                  "Sqrt",
                                                  "Squeeze",
                                                  "Sub",
                                                  "Tanh",
                                                  "Tile",
                                                  "Trilu",
                                                  "Unsqueeze",
                                                  "Where",
                                                  "Xor"};
  if (is_one_of(node.op(), {"MaxUnpool", "DFT", "Attention", "Celu", "Selu"})) return false;
  if (node.op() == "Mod" && is_floating(node.output().dtype())) return false;
  if (node.op() == "Slice" && ends_beyond_all(facts, node)) return false;
  if (std::ranges::find(kSettled, node.op()) != std::end(kSettled)) return true;
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    const ir::Tensor* tensor = node.find_input(i) ? facts.constant(node.find_input(i)) : nullptr;
    if (tensor && is_floating(tensor->dtype()) && !at::isfinite(tensor->aten()).all().item<bool>()) return false;
  }
  return true;
}

std::string_view name_of(const Value& value) {
  return value.name().empty() ? std::string_view("constant") : value.name();
}

bool are_worth_it(const std::vector<ir::Tensor>& results, std::int64_t read) {
  std::int64_t made = 0;
  for (const ir::Tensor& tensor : results) {
    if (!has_kernel(tensor.dtype())) return false;
    made += tensor.numel();
  }
  return made <= std::max(read, kMostStretched);
}

/// What a quantizer wrote stays for the runtime, which computes with it as it is; weights in another order of axes are
/// views (`transposed_weight`).
bool is_kept(const ir::Node& node) {
  return !node.domain().empty() || node.output_count() == 0 ||
         is_one_of(node.op(), {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Identity", "Transpose"});
}

Match match_folded(const Facts& facts, ir::Node& node) {
  if (is_kept(node)) return Match::no("it is not computed beforehand");
  if (!has_constant_operands(facts, node)) return Match::no("an operand is no small constant");
  if (rounds_freely(facts, node)) return Match::no("floats become integers");
  if (!has_settled_result(facts, node)) return Match::no("runtimes make something else of it than ATen");
  if (has_open_shape(facts, node)) return Match::no("runtimes give it another shape than ONNX says");
  auto results = evaluator::fold(node, facts.opset(), kMostBytes);
  if (!results || results->size() != node.output_count()) return Match::no("it cannot be computed, or is large");
  if (!are_worth_it(*results, elements_of(facts, node))) return Match::no("the result is larger than what it is of");
  return Match([results = std::move(*results), &node](Rewriter& rewriter) {
    for (std::size_t i = 0; i < results.size(); ++i) {
      Value& old = node.output(i);
      if (!old.is_unused()) rewriter.replace(old, rewriter.constant(results[i], name_of(old)));
    }
  });
}

/// The same elements in another shape.
Match match_reshaped(const Facts& facts, ir::Node& node) {
  const ir::Tensor* tensor = facts.constant(node.find_input(0));
  const auto& shape = shape_of(node.output());
  if (!tensor || !has_kernel(tensor->dtype()) || tensor->numel() > kMostRead || !shape)
    return Match::no("the operand is no small constant");
  std::vector<std::int64_t> sizes;
  for (const ir::Dim& dim : *shape) {
    if (!dim.is_constant()) return Match::no("the shape changes");
    sizes.push_back(*dim.constant());
  }
  return Match([=, &node, x = tensor->aten()](Rewriter& rewriter) {
    const at::NoGradGuard no_grad;
    rewriter.replace(node.output(),
                     rewriter.constant(ir::Tensor(x.reshape(sizes).contiguous()), name_of(node.output())));
  });
}

}  // namespace

void populate_constants(PatternTable& table) {
  table.add({.name = "constant_folded",
             .matches = "any operator of constants, at most 65,536 elements each, that draws no random number; "
                        "quantized weights stay",
             .makes = "its results, computed with ATen, unless they are larger than the operands and 4,096 elements",
             .roots = {kAnyRoot},
             .match = match_folded});
  table.add({.name = "constant_reshaped",
             .matches = "`Reshape`, `Unsqueeze` or `Squeeze` of a constant, to a known shape",
             .makes = "the constant in that shape",
             .roots = {"Reshape", "Unsqueeze", "Squeeze"},
             .match = match_reshaped});
}

}  // namespace exportguard::optimizer
