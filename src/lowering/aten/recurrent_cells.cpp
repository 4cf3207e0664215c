#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/contraction.h"
#include "lowering/recurrent_steps.h"

namespace exportguard::lowering {
namespace {

/// x weight^T + bias; an input without a batch is a vector.
Value* affine(LoweringContext& ctx, Value* x, Value* weight, Value* bias) {
  Value* product = matmul(ctx, x, ctx.swap_axes(weight, 0, 1));
  return bias ? ctx.op("Add", {product, bias}) : product;
}

/// The weights begin at that argument: of the input, of the state, then the biases, which may be None.
struct Gates {
  Value* of_input;
  Value* of_state;
};

Gates gates_of(LoweringContext& ctx, Value* state, std::size_t weights) {
  return {affine(ctx, ctx.input(0), ctx.input(weights), ctx.find_input(weights + 2)),
          affine(ctx, state, ctx.input(weights + 1), ctx.find_input(weights + 3))};
}

void lower_lstm_cell(LoweringContext& ctx) {
  const std::vector<Value*> states = ctx.inputs(1);
  const Gates gates = gates_of(ctx, states.at(0), 2);
  const auto parts = split_gates(ctx, ctx.op("Add", {gates.of_input, gates.of_state}), 4);
  ctx.results(lstm_step(ctx, {parts[0], parts[1], parts[2], parts[3]}, states.at(1)));
}

void lower_gru_cell(LoweringContext& ctx) {
  Value* state = ctx.input(1);
  const Gates gates = gates_of(ctx, state, 2);
  ctx.result(gru_step(ctx, {split_gates(ctx, gates.of_input, 3), split_gates(ctx, gates.of_state, 3)}, state));
}

void lower_rnn_cell(LoweringContext& ctx, std::string_view activation) {
  const Gates gates = gates_of(ctx, ctx.input(1), 2);
  ctx.result(ctx.op(activation, {ctx.op("Add", {gates.of_input, gates.of_state})}));
}

void lower_rnn_tanh_cell(LoweringContext& ctx) { lower_rnn_cell(ctx, "Tanh"); }
void lower_rnn_relu_cell(LoweringContext& ctx) { lower_rnn_cell(ctx, "Relu"); }

}  // namespace

void populate_recurrent_cells(LoweringTable& table) {
  table.add("aten.lstm_cell.default", lower_lstm_cell);
  table.add("aten.gru_cell.default", lower_gru_cell);
  table.add("aten.rnn_tanh_cell.default", lower_rnn_tanh_cell);
  table.add("aten.rnn_relu_cell.default", lower_rnn_relu_cell);
}

}  // namespace exportguard::lowering
