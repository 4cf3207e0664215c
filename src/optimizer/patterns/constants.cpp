#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <optional>
#include <string_view>
#include <unordered_map>

#include "exportguard/common/torch_dtypes.h"
#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 16;

bool has_kernel(DType dtype) {
  return is_floating(dtype) ? bit_width(dtype) >= 16
                            : (is_integral(dtype) && bit_width(dtype) >= 8) || dtype == DType::kBool;
}

/// The constants that a node reads, if all of them are, and small.
std::optional<std::vector<at::Tensor>> constant_operands(const Facts& facts, const ir::Node& node) {
  std::vector<at::Tensor> operands;
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    const ir::Tensor* tensor = facts.constant(node.find_input(i));
    const bool is_taken = tensor && has_kernel(tensor->dtype()) && tensor->numel() <= kMostElements;
    if (!is_taken) return std::nullopt;
    operands.push_back(tensor->aten());
  }
  return operands;
}

std::string_view name_of(const ir::Node& node) {
  return node.output().name().empty() ? std::string_view("constant") : node.output().name();
}

using Compute = at::Tensor (*)(const std::vector<at::Tensor>&);

const std::unordered_map<std::string_view, Compute>& float_operators() {
  static const std::unordered_map<std::string_view, Compute> table = {
      {"Add", [](const std::vector<at::Tensor>& x) { return x[0] + x[1]; }},
      {"Sub", [](const std::vector<at::Tensor>& x) { return x[0] - x[1]; }},
      {"Mul", [](const std::vector<at::Tensor>& x) { return x[0] * x[1]; }},
      {"Div", [](const std::vector<at::Tensor>& x) { return x[0] / x[1]; }},
      {"Neg", [](const std::vector<at::Tensor>& x) { return -x[0]; }},
      {"Sqrt", [](const std::vector<at::Tensor>& x) { return x[0].sqrt(); }},
      {"Reciprocal", [](const std::vector<at::Tensor>& x) { return x[0].reciprocal(); }},
      {"Exp", [](const std::vector<at::Tensor>& x) { return x[0].exp(); }},
  };
  return table;
}

/// Elementwise on floats of one dtype: what ATen and the runtime round is the same but for the last bit of Exp.
Match match_arithmetic(const Facts& facts, ir::Node& node) {
  const auto operands = constant_operands(facts, node);
  if (!operands || operands->empty()) return Match::no("an operand is no small constant");
  const at::ScalarType dtype = operands->front().scalar_type();
  for (const at::Tensor& operand : *operands) {
    const bool is_float = at::isFloatingType(operand.scalar_type()) && operand.scalar_type() == dtype;
    if (!is_float) return Match::no("the operands are no floats of one dtype");
  }
  const Compute compute = float_operators().at(node.op());
  return Match([=, &node, operands = *operands](Rewriter& rewriter) {
    const at::NoGradGuard no_grad;
    rewriter.replace(node.output(), rewriter.constant(ir::Tensor(compute(operands).contiguous()), name_of(node)));
  });
}

/// From floats to integers ONNX leaves open what does not fit; those casts stay.
Match match_cast(const Facts& facts, ir::Node& node) {
  const auto operands = constant_operands(facts, node);
  const DType to = node.output().dtype();
  if (!operands || !has_kernel(to)) return Match::no("the operand is no small constant");
  const bool is_safe = is_floating(to) || to == DType::kBool || !at::isFloatingType(operands->front().scalar_type());
  if (!is_safe) return Match::no("floats become integers");
  return Match([=, &node, x = operands->front()](Rewriter& rewriter) {
    const at::NoGradGuard no_grad;
    rewriter.replace(node.output(),
                     rewriter.constant(ir::Tensor(x.to(to_scalar_type(to)).contiguous()), name_of(node)));
  });
}

Match match_filled(const Facts& facts, ir::Node& node) {
  const auto sizes = facts.ints(node.find_input(0));
  if (!sizes) return Match::no("the sizes are no constant");
  std::int64_t count = 1;
  for (const std::int64_t size : *sizes) count *= size;
  if (count > 64) return Match::no("the tensor is large");
  const ir::Attribute* content = node.find_attribute("value");
  const auto* tensor = content ? std::get_if<ir::Tensor>(content) : nullptr;
  if (!tensor || !has_kernel(tensor->dtype())) return Match::no("the element is not given");
  return Match([=, &node, sizes = *sizes, x = tensor->aten()](Rewriter& rewriter) {
    const at::NoGradGuard no_grad;
    const at::Tensor filled = x.reshape(std::vector<std::int64_t>{}).expand(sizes).contiguous();
    rewriter.replace(node.output(), rewriter.constant(ir::Tensor(filled), name_of(node)));
  });
}

/// The same elements in another shape.
Match match_reshaped(const Facts& facts, ir::Node& node) {
  const ir::Tensor* tensor = facts.constant(node.find_input(0));
  const auto& shape = shape_of(node.output());
  if (!tensor || !has_kernel(tensor->dtype()) || tensor->numel() > kMostElements || !shape)
    return Match::no("the operand is no small constant");
  std::vector<std::int64_t> sizes;
  for (const ir::Dim& dim : *shape) {
    if (!dim.is_constant()) return Match::no("the shape changes");
    sizes.push_back(*dim.constant());
  }
  return Match([=, &node, x = tensor->aten()](Rewriter& rewriter) {
    const at::NoGradGuard no_grad;
    const bool stretches = node.op() == "Expand";
    const at::Tensor shaped = stretches ? x.expand(sizes) : x.reshape(sizes);
    rewriter.replace(node.output(), rewriter.constant(ir::Tensor(shaped.contiguous()), name_of(node)));
  });
}

}  // namespace

void populate_constants(PatternTable& table) {
  std::vector<std::string_view> operators;
  for (const auto& [name, compute] : float_operators()) operators.push_back(name);
  table.add({.name = "constant_arithmetic",
             .matches = "arithmetic on constants of floats with at most 65,536 elements",
             .makes = "the constant, computed with ATen",
             .roots = operators,
             .match = match_arithmetic});
  table.add({.name = "constant_cast",
             .matches = "`Cast` of such a constant, but for floats to integers",
             .makes = "the constant",
             .roots = {"Cast"},
             .match = match_cast});
  table.add({.name = "constant_filled",
             .matches = "`ConstantOfShape` of at most 64 elements",
             .makes = "the constant",
             .roots = {"ConstantOfShape"},
             .match = match_filled});
  table.add({.name = "constant_reshaped",
             .matches = "`Reshape`, `Unsqueeze`, `Squeeze` or `Expand` of a constant, to a known shape",
             .makes = "the constant in that shape",
             .roots = {"Reshape", "Unsqueeze", "Squeeze", "Expand"},
             .match = match_reshaped});
}

}  // namespace exportguard::optimizer
