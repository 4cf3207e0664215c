#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/contraction.h"

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

std::vector<Value*> split_gates(LoweringContext& ctx, Value* gates, std::size_t count) {
  return ctx.op_many("Split", {gates}, count, {{"axis", -1}, {"num_outputs", static_cast<std::int64_t>(count)}});
}

void lower_lstm_cell(LoweringContext& ctx) {
  const std::vector<Value*> states = ctx.inputs(1);
  const Gates gates = gates_of(ctx, states.at(0), 2);
  const auto parts = split_gates(ctx, ctx.op("Add", {gates.of_input, gates.of_state}), 4);
  Value* kept = ctx.op("Mul", {ctx.op("Sigmoid", {parts[1]}), states.at(1)});
  Value* taken = ctx.op("Mul", {ctx.op("Sigmoid", {parts[0]}), ctx.op("Tanh", {parts[2]})});
  Value* cell = ctx.op("Add", {kept, taken});
  ctx.results({ctx.op("Mul", {ctx.op("Sigmoid", {parts[3]}), ctx.op("Tanh", {cell})}), cell});
}

void lower_gru_cell(LoweringContext& ctx) {
  Value* state = ctx.input(1);
  const Gates gates = gates_of(ctx, state, 2);
  const auto from_input = split_gates(ctx, gates.of_input, 3);
  const auto from_state = split_gates(ctx, gates.of_state, 3);
  Value* reset = ctx.op("Sigmoid", {ctx.op("Add", {from_input[0], from_state[0]})});
  Value* update = ctx.op("Sigmoid", {ctx.op("Add", {from_input[1], from_state[1]})});
  Value* fresh = ctx.op("Tanh", {ctx.op("Add", {from_input[2], ctx.op("Mul", {reset, from_state[2]})})});
  ctx.result(ctx.op("Add", {fresh, ctx.op("Mul", {update, ctx.op("Sub", {state, fresh})})}));
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
