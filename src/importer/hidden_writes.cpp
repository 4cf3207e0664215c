#include "importer/hidden_writes.h"

#include "importer/torch_call.h"

namespace exportguard::importer {
namespace {

using ir::Node;
using ir::Value;

bool flag(const Node& node, std::size_t position) {
  const auto& arguments = node.arguments();
  const bool* value = position < arguments.size() ? arguments[position].get_if<bool>() : nullptr;
  return value != nullptr && *value;
}

/// batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled)
bool updates_statistics(const Node& node) {
  const bool is_batch_norm = node.is("aten", "batch_norm.default") || node.is("aten", "cudnn_batch_norm.default");
  return is_batch_norm && flag(node, 5) && find_operand(node, 3) && find_operand(node, 4);
}

void reveal(Node& node) {
  const Value& mean = *find_operand(node, 3);
  std::vector<CallArgument> arguments;
  for (std::size_t i = 0; i < 8; ++i) arguments.push_back(CallArgument::of(node, i));
  const Node& made = TorchCall(node).node("aten", "_native_batch_norm_legit.default", arguments,
                                          {node.output().type(), mean.type(), mean.type()});
  made.output().set_name(node.output().name());
  node.output().replace_all_uses_with(made.output());
  node.graph().erase(node);
}

}  // namespace

void reveal_writes(ir::Graph& graph) {
  for (Node& node : graph) {
    for (ir::Graph* body : node.subgraphs()) reveal_writes(*body);
    if (updates_statistics(node)) reveal(node);
  }
}

}  // namespace exportguard::importer
