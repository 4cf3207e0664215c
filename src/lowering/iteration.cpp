#include "lowering/iteration.h"

#include <fmt/format.h>

#include <memory>
#include <set>

namespace exportguard::lowering {

void return_from(LoweringContext& ctx, ir::Graph& graph, const std::vector<Value*>& values) {
  std::set<const Value*> returned;
  for (Value* value : values) {
    const bool is_computed_here = value->producer() != nullptr && &value->graph() == &graph;
    const bool is_new = returned.insert(value).second;
    graph.add_output(is_computed_here && is_new ? value : ctx.op("Identity", {value}));
  }
}

namespace {

/// The types of what a step collects.
std::vector<ir::Type> fill(LoweringContext& ctx, ir::Graph& graph, const std::vector<Value*>& initial,
                           const WriteStep& write) {
  Value* iteration = &graph.add_input("iteration", ir::Type::tensor(DType::kInt64, ir::Shape{}));
  Value* continued = &graph.add_input("continues", ir::Type::tensor(DType::kBool, ir::Shape{}));
  std::vector<Value*> state;
  for (std::size_t i = 0; i < initial.size(); ++i) {
    state.push_back(&graph.add_input(fmt::format("state_{}", i), initial[i]->type()));
  }
  const LoweringContext::Inside inside(ctx, graph);
  const Step step = write(iteration, state);
  std::vector<Value*> values = {step.continues ? step.continues : continued};
  values.insert(values.end(), step.state.begin(), step.state.end());
  values.insert(values.end(), step.collected.begin(), step.collected.end());
  return_from(ctx, graph, values);
  std::vector<ir::Type> types;
  for (const Value* value : step.collected) types.push_back(value->type());
  return types;
}

/// One element for each step.
ir::Type of_all_steps(ir::Type type, const LoweringContext& ctx, const Value* count) {
  if (!type.shape) return type;
  const ir::Elements* counted = ctx.find_elements(count);
  const bool is_known = counted != nullptr && counted->size() == 1;
  if (!is_known) return ir::Type::tensor(type.dtype);
  type.shape->insert(type.shape->begin(), counted->front());
  return type;
}

}  // namespace

std::vector<Value*> repeated(LoweringContext& ctx, Value* count, const std::vector<Value*>& initial,
                             const WriteStep& write, std::size_t collected) {
  std::vector<Value*> operands = {count, ctx.constant(true, DType::kBool)};
  operands.insert(operands.end(), initial.begin(), initial.end());
  std::vector<Value*> outputs =
      ctx.op_many("Loop", operands, initial.size() + collected, {{"body", std::make_unique<ir::Graph>("body")}});
  const std::vector<ir::Type> types = fill(ctx, outputs.front()->producer()->subgraph("body"), initial, write);
  for (std::size_t i = 0; i < initial.size(); ++i) outputs[i]->set_type(initial[i]->type());
  for (std::size_t i = 0; i < types.size(); ++i)
    outputs[initial.size() + i]->set_type(of_all_steps(types[i], ctx, count));
  return outputs;
}

}  // namespace exportguard::lowering
