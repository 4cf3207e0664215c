#include "importer/inline_bodies.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "importer/torch_call.h"
#include "operators/schemas.h"

namespace exportguard::importer {
namespace {

using ir::Node;

bool sets_a_mode(const Node& node) {
  static const std::set<std::string_view> names = {
      "hints_wrapper",      "tag_activation_checkpoint",  "wrap",
      "wrap_with_autocast", "wrap_with_set_grad_enabled", "wrap_activation_checkpoint"};
  return node.domain() == "higher_order" && names.contains(node.op()) && node.find_attribute("body") != nullptr;
}

bool has_writes(const ir::Graph& graph, operators::OperatorTable& operators) {
  for (Node& node : graph) {
    const operators::Effect effect = operators.of(node).effect;
    if (effect == operators::Effect::kWrite || effect == operators::Effect::kReshapeSelf) return true;
    for (const ir::Graph* body : node.subgraphs()) {
      if (has_writes(*body, operators)) return true;
    }
  }
  return false;
}

// ------------------------------------------------------------------------------------------------ autocast

bool is_conversion(const Node& node) {
  static const std::set<std::string_view> names = {"_to_copy",   "to",        "type_as",    "copy",
                                                   "copy_",      "full_like", "zeros_like", "ones_like",
                                                   "empty_like", "rand_like", "randn_like"};
  return names.contains(operators::base_name(node.op()));
}

/// wrap_with_autocast(device_type, dtype, enabled, …)
bool is_enabled_autocast(const Node& node) {
  if (node.op() != "wrap_with_autocast" || node.arguments().size() < 3) return false;
  const bool* enabled = node.arguments()[2].get_if<bool>();
  return enabled != nullptr && *enabled;
}

ir::Value& cast(ir::Value& value, DType dtype, const TorchCall& call) {
  ir::Type type = value.type();
  type.dtype = dtype;
  return call.aten("to.dtype", {value, dtype}, std::move(type));
}

/// Autocast leaves no nodes: torch only recorded that the result has another dtype than its operands. Whatever computes
/// in another floating dtype than it was given had its operands converted.
void cast_operands(Node& node) {
  if (node.domain() != "aten" || node.output_count() == 0 || is_conversion(node)) return;
  const DType dtype = node.output().dtype();
  if (!is_floating(dtype) || node.output().type().is_scalar) return;
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    ir::Value* value = node.find_input(i);
    if (value == nullptr || value->type().is_scalar || !is_floating(value->dtype()) || value->dtype() == dtype)
      continue;
    node.set_input(i, &cast(*value, dtype, TorchCall(node)));
  }
}

// ------------------------------------------------------------------------------------------------ splicing

/// The operands of a body are the last ones of its node.
std::vector<ir::Value*> body_operands(const Node& node, const ir::Graph& body) {
  std::vector<ir::Value*> values;
  const std::size_t count = body.input_count();
  for (std::size_t i = node.input_count() - count; i < node.input_count(); ++i) values.push_back(node.find_input(i));
  return values;
}

void replace_by_body(Node& node, const ir::Graph& body) {
  const std::vector<ir::Value*> operands = body_operands(node, body);
  const std::vector<ir::Value*> results = node.graph().splice(body, operands, &node);
  for (std::size_t i = 0; i < node.output_count(); ++i) {
    if (results.at(i) != nullptr) node.output(i).replace_all_uses_with(*results[i]);
  }
  node.graph().erase(node);
}

}  // namespace

void inline_bodies(ir::Graph& graph, operators::OperatorTable& operators) {
  for (Node& node : graph) {
    for (ir::Graph* body : node.subgraphs()) inline_bodies(*body, operators);
    const bool writes = node.is("higher_order", "invoke_subgraph") && has_writes(node.subgraph("body"), operators);
    if (!sets_a_mode(node) && !writes) continue;
    ir::Graph& body = node.subgraph("body");
    if (is_enabled_autocast(node)) {
      for (Node& inner : body) cast_operands(inner);
    }
    replace_by_body(node, body);
  }
}

}  // namespace exportguard::importer
