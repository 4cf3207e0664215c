#include "exportguard/lowering/widening.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "exportguard/ir/builder.h"
#include "lowering/target_facts.h"

namespace exportguard::lowering {
namespace {

/// The name in the table of what a target runs: a scatter that reduces computes, one that does not moves values.
std::string_view kernel_name(const ir::Node& node) {
  const ir::Attribute* reduction = node.find_attribute("reduction");
  const bool reduces = reduction != nullptr && std::get<std::string>(*reduction) != "none";
  const std::string_view op = node.op();  // of the node: a text of either kind beside it would be a copy
  return op.starts_with("Scatter") && reduces ? "Scatter:reduction" : op;
}

bool is_narrow(const ir::Value* value) { return value != nullptr && value->dtype() == DType::kBFloat16; }

/// Widens the nodes of one model for one target.
class Widening {
 public:
  Widening(ir::Model& model, const TargetFacts& target) : model_(model), target_(target) {}

  void widen(ir::Graph& graph) {
    for (ir::Node& node : graph) {
      for (ir::Graph* body : node.subgraphs()) widen(*body);
      if (!is_run(node)) widen(node);
    }
  }

  std::size_t widened() const { return widened_; }

 private:
  /// Local functions are calls of what stands in their bodies.
  bool is_run(const ir::Node& node) const {
    const bool is_local = std::ranges::any_of(model_.functions, [&](const ir::Function& function) {
      return function.domain == node.domain() && function.name == node.op();
    });
    return is_local || !node.subgraphs().empty() || carries_bfloat16(target_, kernel_name(node));
  }

  void widen(ir::Node& node) {
    const std::size_t before = widened_;
    widen_inputs(node);
    for (std::size_t i = 0; i < node.output_count(); ++i) {
      if (is_narrow(&node.output(i))) widen_output(node, node.output(i));
    }
    if (widened_ != before) widen_attribute(node);
  }

  void widen_inputs(ir::Node& node) {
    ir::Builder in_front(model_, node);
    for (std::size_t i = 0; i < node.input_count(); ++i) {
      ir::Value* input = node.find_input(i);
      if (!is_narrow(input)) continue;
      // A node, for weights as well, which stay in the file as the model has them.
      node.set_input(i, in_front.op("Cast", {input}, {{"to", static_cast<std::int64_t>(DType::kFloat32)}}));
      ++widened_;
    }
  }

  void widen_output(ir::Node& node, ir::Value& output) {
    const ir::Type narrow = output.type();
    ir::Type wide = narrow;
    wide.dtype = DType::kFloat32;
    output.set_type(wide);
    ir::Builder behind(model_, {&node.graph(), node.next(), node.source()});
    ir::Value* cast = behind.cast(&output, DType::kBFloat16);
    output.replace_all_uses_with(*cast);
    cast->producer()->set_input(0, &output);
    cast->set_type(narrow);
    ++widened_;
  }

  /// What makes numbers of a dtype that an attribute says.
  void widen_attribute(ir::Node& node) {
    const ir::Attribute* dtype = node.find_attribute("dtype");
    if (dtype != nullptr && node.output().dtype() == DType::kFloat32)
      node.set_attribute("dtype", static_cast<std::int64_t>(DType::kFloat32));
  }

  ir::Model& model_;
  const TargetFacts& target_;
  std::size_t widened_ = 0;
};

}  // namespace

std::size_t widen_bfloat16(ir::Model& model, Target target) {
  if (facts(target).bfloat16.empty()) return 0;
  Widening widening(model, facts(target));
  widening.widen(*model.graph);
  for (ir::Function& function : model.functions) widening.widen(*function.body);
  return widening.widened();
}

}  // namespace exportguard::lowering
