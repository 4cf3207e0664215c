// Control flow of exported programs. Bodies are graph attributes that read what is outside through their inputs alone.
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>

#include "evaluator/call.h"
#include "evaluator/table.h"
#include "exportguard/common/torch_dtypes.h"

namespace exportguard::evaluator {
namespace {

using ir::Argument;

Datum number(const Call& call, const at::Scalar& value) {
  const at::Tensor tensor = at::scalar_tensor(value, at::TensorOptions(call.device()).dtype(value.type()));
  return Datum::of(tensor, from_scalar_type(tensor.scalar_type()));
}

// Tensors and numbers of an argument, lists taken apart.
void collect(const Call& call, const Argument& argument, Data& into) {
  if (const auto* list = argument.get_if<Argument::List>()) {
    for (const Argument& item : *list) collect(call, item, into);
  } else if (const auto* operand = argument.get_if<Argument::Operand>()) {
    into.push_back(call.datum(operand->index));
  } else if (const auto* whole = argument.get_if<std::int64_t>()) {
    into.push_back(number(call, *whole));
  } else if (const auto* real = argument.get_if<double>()) {
    into.push_back(number(call, *real));
  } else if (const auto* flag = argument.get_if<bool>()) {
    into.push_back(number(call, *flag));
  }
}

Data operands(const Call& call, std::size_t position) {
  Data data;
  if (position < call.node().arguments().size()) collect(call, call.node().arguments()[position], data);
  return data;
}

Data joined(Data a, const Data& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

bool is_true(const Call& call, const Data& values) {
  call.require(!values.empty() && values.front().is_tensor(), "its condition must be a bool");
  return values.front().tensor.item().toBool();
}

void give(Call& call, Data results) {
  for (Datum& result : results) call.result(std::move(result));
}

void run_cond(Call& call) {
  give(call, call.run_body(is_true(call, operands(call, 0)) ? "true_fn" : "false_fn", operands(call, 3)));
}

void run_while_loop(Call& call) {
  Data carried = operands(call, 2);
  const Data captured = operands(call, 3);
  while (is_true(call, call.run_body("cond_fn", joined(carried, captured)))) {
    carried = call.run_body("body_fn", joined(carried, captured));
  }
  give(call, std::move(carried));
}

std::string sole_body(const Call& call) {
  for (const ir::NamedAttribute& attribute : call.node().attributes()) {
    if (std::holds_alternative<std::unique_ptr<ir::Graph>>(attribute.second)) return attribute.first;
  }
  call.fail("it has no body");
}

// State is handed on, tensors are cut along their first axis, and what each step gives beside the state is stacked.
void scan(Call& call, Data state, const Data& cut, const Data& captured) {
  const std::string body = sole_body(call);
  call.require(!cut.empty(), "there must be a tensor to run over");
  const std::size_t state_count = state.size();
  std::vector<std::vector<at::Tensor>> collected(call.node().subgraph(body).output_count() - state_count);
  for (std::int64_t i = 0; i < cut.front().tensor.size(0); ++i) {
    Data inputs = state;
    for (const Datum& whole : cut) inputs.push_back(Datum::of(whole.tensor.select(0, i), whole.dtype));
    Data results = call.run_body(body, joined(std::move(inputs), captured));
    for (std::size_t k = 0; k < state_count; ++k) state[k] = std::move(results[k]);
    for (std::size_t k = 0; k < collected.size(); ++k) collected[k].push_back(results[state_count + k].tensor);
  }
  give(call, std::move(state));
  for (const auto& parts : collected) call.result(at::stack(parts));
}

void run_scan(Call& call) { scan(call, operands(call, 1), operands(call, 2), operands(call, 3)); }
void run_map(Call& call) { scan(call, {}, operands(call, 1), operands(call, 2)); }

// The operands follow the body, each by itself or as a list; what else follows is a setting.
void run_wrapper(Call& call) {
  const std::string body = sole_body(call);
  Data inputs;
  bool is_behind_body = false;
  for (const Argument& argument : call.node().arguments()) {
    is_behind_body = is_behind_body || argument.is_none();
    if (is_behind_body) collect(call, argument, inputs);
  }
  const std::size_t count = call.node().subgraph(body).input_count();
  call.require(inputs.size() >= count, "its body takes more operands");
  inputs.resize(count);
  give(call, call.run_body(body, std::move(inputs)));
}

}  // namespace

void populate_higher_order(OperatorTable& table) {
  table.add("higher_order.cond", run_cond);
  table.add("higher_order.while_loop", run_while_loop);
  table.add("higher_order.scan", run_scan);
  table.add({"higher_order.map_impl", "higher_order.map"}, run_map);
  table.add({"higher_order.wrap_with_set_grad_enabled", "higher_order.invoke_subgraph", "higher_order.hints_wrapper",
             "higher_order.wrap", "higher_order.strict_mode", "higher_order.tag_activation_checkpoint",
             "higher_order.wrap_activation_checkpoint"},
            run_wrapper);
}

}  // namespace exportguard::evaluator
