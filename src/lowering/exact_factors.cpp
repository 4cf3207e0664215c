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

/// x · number
struct Scaling {
  ir::Value* x;
  double number;
};

std::optional<double> number_in(const ir::Builder& builder, const ir::Value* value) {
  const ir::Tensor* tensor = builder.find_constant(value);
  if (tensor == nullptr || tensor->numel() != 1) return std::nullopt;
  return tensor->to_doubles().front();
}

std::optional<Scaling> scaling_of(const ir::Builder& builder, ir::Node& node) {
  const bool divides = node.op() == "Div";
  if (!node.domain().empty() || (node.op() != "Mul" && !divides) || node.output().dtype() != DType::kFloat64)
    return std::nullopt;
  if (const auto number = number_in(builder, node.find_input(1)))
    return Scaling{node.find_input(0), divides ? 1 / *number : *number};
  if (divides) return std::nullopt;
  if (const auto number = number_in(builder, node.find_input(0))) return Scaling{node.find_input(1), *number};
  return std::nullopt;
}

bool is_exact(double number) { return static_cast<double>(static_cast<float>(number)) == number; }

bool stands_beside_product(const ir::Node& node, const Scaling& scaling) {
  return may_take_factor(scaling.x->producer()) ||
         std::ranges::any_of(node.output().uses(), [](const ir::Use* use) { return may_take_factor(&use->user()); });
}

bool split(ir::Model& model, ir::Node& node) {
  ir::Builder builder(model, node);
  const auto found = scaling_of(builder, node);
  if (!found || is_exact(found->number) || !stands_beside_product(node, *found)) return false;
  const double first = static_cast<float>(found->number);
  const auto times = [&](double number) {
    return builder.op("Mul", {found->x, builder.constant(number, DType::kFloat64)});
  };
  ir::Value* sum = builder.op("Add", {times(first), times(found->number - first)});
  sum->set_type(node.output().type());
  node.output().replace_all_uses_with(*sum);
  return true;
}

std::size_t split_in(ir::Model& model, ir::Graph& graph) {
  std::size_t count = 0;
  for (ir::Node& node : graph) {
    for (ir::Graph* body : node.subgraphs()) count += split_in(model, *body);
    if (split(model, node)) ++count;
  }
  graph.erase_dead_nodes();
  return count;
}

}  // namespace

std::size_t split_factors(ir::Model& model, Target target) {
  if (!departs(target, Departure::kProductScaledInFloat32)) return 0;
  std::size_t count = split_in(model, *model.graph);
  for (ir::Function& function : model.functions) count += split_in(model, *function.body);
  return count;
}

}  // namespace exportguard::lowering
