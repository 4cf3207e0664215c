#include "exportguard/lowering/exact_factors.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "exportguard/ir/builder.h"
#include "lowering/target_facts.h"

namespace exportguard::lowering {
namespace {

/// Numbers go through each other's multiplications to a product of matrices.
bool may_take_factor(const ir::Node* node) {
  static constexpr std::string_view kTaking[] = {"MatMul", "Mul", "Div", "Transpose"};
  return node != nullptr && node->domain().empty() && std::ranges::find(kTaking, node->op()) != std::end(kTaking);
}

std::optional<double> number_in(const ir::Builder& builder, const ir::Value* value) {
  const ir::Tensor* tensor = builder.find_constant(value);
  if (tensor == nullptr || tensor->numel() != 1) return std::nullopt;
  return tensor->to_doubles().front();
}

/// The place of the operand that a Mul or Div of doubles scales by a number that is none of float32.
std::optional<std::size_t> scaled_operand(const ir::Builder& builder, ir::Node& node) {
  const bool divides = node.op() == "Div";
  if (!node.domain().empty() || (node.op() != "Mul" && !divides) || node.output().dtype() != DType::kFloat64)
    return std::nullopt;
  const auto is_inexact = [&](std::size_t place) {
    const auto number = number_in(builder, node.find_input(place));
    if (!number) return false;
    const double factor = divides ? 1 / *number : *number;
    return static_cast<double>(static_cast<float>(factor)) != factor;
  };
  if (is_inexact(1)) return 0;
  if (!divides && is_inexact(0)) return 1;
  return std::nullopt;
}

bool stands_beside_product(const ir::Node& node, const ir::Value& operand) {
  return may_take_factor(operand.producer()) ||
         std::ranges::any_of(node.output().uses(), [](const ir::Use* use) { return may_take_factor(&use->user()); });
}

/// -(-x · number) is x · number, whatever x is, and no number goes through a Neg.
bool keep_apart(ir::Model& model, ir::Node& node) {
  ir::Builder builder(model, node);
  const auto place = scaled_operand(builder, node);
  if (!place || !stands_beside_product(node, node.input(*place))) return false;
  std::vector<ir::Value*> operands = {&node.input(0), &node.input(1)};
  operands[*place] = builder.op("Neg", {operands[*place]});
  ir::Value* scaled = builder.op("Neg", {builder.op(node.op(), operands)});
  scaled->set_type(node.output().type());
  node.output().replace_all_uses_with(*scaled);
  return true;
}

std::size_t keep_apart_in(ir::Model& model, ir::Graph& graph) {
  std::size_t count = 0;
  for (ir::Node& node : graph) {
    for (ir::Graph* body : node.subgraphs()) count += keep_apart_in(model, *body);
    if (keep_apart(model, node)) ++count;
  }
  graph.erase_dead_nodes();
  return count;
}

}  // namespace

std::size_t keep_factors(ir::Model& model, Target target) {
  if (!departs(target, Departure::kProductScaledInFloat32)) return 0;
  std::size_t count = keep_apart_in(model, *model.graph);
  for (ir::Function& function : model.functions) count += keep_apart_in(model, *function.body);
  return count;
}

}  // namespace exportguard::lowering
