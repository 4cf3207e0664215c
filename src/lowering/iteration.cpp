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

void fill(LoweringContext& ctx, ir::Graph& graph, const std::vector<Value*>& initial, const WriteStep& write) {
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
  return_from(ctx, graph, values);
}

}  // namespace

std::vector<Value*> repeated(LoweringContext& ctx, Value* count, const std::vector<Value*>& initial,
                             const WriteStep& write) {
  std::vector<Value*> operands = {count, ctx.constant(true, DType::kBool)};
  operands.insert(operands.end(), initial.begin(), initial.end());
  std::vector<Value*> outputs =
      ctx.op_many("Loop", operands, initial.size(), {{"body", std::make_unique<ir::Graph>("body")}});
  fill(ctx, outputs.front()->producer()->subgraph("body"), initial, write);
  for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i]->set_type(initial[i]->type());
  return outputs;
}

}  // namespace exportguard::lowering
