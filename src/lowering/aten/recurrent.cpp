#include <string>
#include <utility>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/checks.h"
#include "lowering/kernels.h"
#include "lowering/packed_layout.h"
#include "lowering/recurrent_steps.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

/// One kind of recurrent layer: the ONNX operator and the order in which it wants torch's gates.
struct Kind {
  std::string_view op;
  std::vector<std::size_t> gates;  ///< torch's index of each gate, in ONNX's order
  std::vector<std::string> activations;
};

Kind lstm_kind() { return {"LSTM", {0, 3, 1, 2}, {}}; }  // torch: input, forget, cell, output
Kind gru_kind() { return {"GRU", {1, 0, 2}, {}}; }       // torch: reset, update, new
Kind tanh_kind() { return {"RNN", {0}, {"Tanh"}}; }
Kind relu_kind() { return {"RNN", {0}, {"Relu"}}; }

/// The arguments after input and state.
struct Stack {
  std::vector<Value*> parameters;
  bool has_biases;
  std::int64_t layers;
  double dropout;
  bool is_bidirectional;
  bool is_batch_first;
  Value* lengths = nullptr;   ///< int32[batch]: the steps of each sequence; null: all
  bool is_projected = false;  ///< proj_size: each direction ends with the weight of a projection of the hidden state

  std::size_t directions() const { return is_bidirectional ? 2 : 1; }
  std::size_t per_direction() const { return (has_biases ? 4 : 2) + (is_projected ? 1 : 0); }
  std::size_t expected() const { return per_direction() * directions() * static_cast<std::size_t>(layers); }
};

/// From the arguments params, has_biases, num_layers, dropout, train, bidirectional, which begin at `first`.
Stack stack_at(LoweringContext& ctx, std::size_t first) {
  const double dropout = ctx.flag(first + 4) ? ctx.number(first + 3) : 0.0;
  Stack stack = {ctx.inputs(first), ctx.flag(first + 1), ctx.integer(first + 2), dropout, ctx.flag(first + 5), false};
  stack.is_projected = stack.parameters.size() > stack.expected();
  ctx.require(stack.parameters.size() == stack.expected(), "expected " + std::to_string(stack.expected()) +
                                                               " weights and biases, got " +
                                                               std::to_string(stack.parameters.size()));
  return stack;
}

/// The rows of a weight or bias, gate by gate, in ONNX's order.
Value* reordered(LoweringContext& ctx, Value* weight, const Kind& kind) {
  const std::size_t count = kind.gates.size();
  if (count == 1) return weight;
  const auto gates =
      ctx.op_many("Split", {weight}, count, {{"axis", 0}, {"num_outputs", static_cast<std::int64_t>(count)}});
  std::vector<Value*> parts;
  for (const std::size_t gate : kind.gates) parts.push_back(gates[gate]);
  return ctx.concat(parts, 0);
}

/// The parameter at `offset` of each direction of a layer, as [directions, ...].
Value* of_directions(LoweringContext& ctx, const Stack& stack, std::size_t layer, const Kind& kind,
                     std::initializer_list<std::size_t> offsets) {
  std::vector<Value*> directions;
  for (std::size_t direction = 0; direction < stack.directions(); ++direction) {
    const std::size_t first = (layer * stack.directions() + direction) * stack.per_direction();
    std::vector<Value*> parts;
    for (const std::size_t offset : offsets) parts.push_back(reordered(ctx, stack.parameters.at(first + offset), kind));
    directions.push_back(ctx.unsqueeze(ctx.concat(parts, 0), {0}));
  }
  return ctx.concat(directions, 0);
}

/// [hidden, projected]
Value* projection(LoweringContext& ctx, const Stack& stack, std::size_t layer, std::size_t direction) {
  const std::size_t next = (layer * stack.directions() + direction + 1) * stack.per_direction();
  return ctx.swap_axes(stack.parameters.at(next - 1), 0, 1);
}

std::int64_t hidden_size(LoweringContext& ctx, const Stack& stack) {
  const auto size = ctx.size(stack.parameters.at(stack.is_projected ? stack.per_direction() - 1 : 1), 1).constant();
  ctx.require(size.has_value(), "the hidden size must be known");
  return *size;
}

/// Of an output of a layer, all directions beside each other.
std::int64_t output_width(LoweringContext& ctx, const Stack& stack) {
  const auto projected = stack.is_projected ? ctx.size(stack.parameters.at(1), 1).constant() : std::nullopt;
  return projected.value_or(hidden_size(ctx, stack)) * static_cast<std::int64_t>(stack.directions());
}

std::vector<ir::NamedAttribute> attributes_of(LoweringContext& ctx, const Stack& stack, const Kind& kind) {
  std::vector<ir::NamedAttribute> attributes;
  attributes.emplace_back("hidden_size", hidden_size(ctx, stack));
  attributes.emplace_back("direction", std::string(stack.is_bidirectional ? "bidirectional" : "forward"));
  if (kind.op == "GRU") attributes.emplace_back("linear_before_reset", std::int64_t{1});
  if (!kind.activations.empty()) {
    std::vector<std::string> activations;
    for (std::size_t i = 0; i < stack.directions(); ++i) activations.push_back(kind.activations.front());
    attributes.emplace_back("activations", std::move(activations));
  }
  return attributes;
}

/// [sequence, directions, batch, hidden] as [sequence, batch, directions hidden].
Value* joined_directions(LoweringContext& ctx, Value* y, Value* x, std::int64_t width) {
  return ctx.reshape(ctx.transpose(y, {0, 2, 1, 3}), {size_of(ctx, x, 0), size_of(ctx, x, 1), width});
}

/// What one layer of the operator is given.
struct Layer {
  Value* x;
  Value* of_input;  ///< weights [directions, gates, features]
  Value* of_state;
  std::vector<Value*> states;
};

Layer plain_layer(LoweringContext& ctx, const Stack& stack, const Kind& kind, std::size_t layer, Value* x,
                  const std::vector<Value*>& states) {
  const auto first = static_cast<std::int64_t>(layer * stack.directions());
  const auto last = first + static_cast<std::int64_t>(stack.directions());
  Layer result = {x, of_directions(ctx, stack, layer, kind, {0}), of_directions(ctx, stack, layer, kind, {1}), {}};
  for (Value* state : states) result.states.push_back(stack.layers == 1 ? state : ctx.slice(state, 0, first, last));
  return result;
}

// ------------------------------------------------------------------------------------------------ projected states
//
// ONNX's operator has no projection h = P m of the hidden state m. It gives m where the weights of the state are R P
// instead of R, but for the first step, which starts from a state h that is P m for no m: it comes as further features
// of that step's input, whose weights are R.

/// bool [steps, batch or 1, 1]: the step that a direction begins with.
Value* first_steps(LoweringContext& ctx, const Stack& stack, Value* x, bool is_backward) {
  Value* steps = ctx.unsqueeze(range(ctx, size_of(ctx, x, 0)), {1, 2});
  if (!is_backward) return ctx.op("Equal", {steps, ctx.constant(0, DType::kInt64)});
  Value* count =
      stack.lengths ? ctx.unsqueeze(ctx.cast(stack.lengths, DType::kInt64), {1}) : as_scalar(ctx, size_of(ctx, x, 0));
  return ctx.op("Equal", {steps, ctx.op("Sub", {count, ctx.constant(1, DType::kInt64)})});
}

Layer projected_layer(LoweringContext& ctx, const Stack& stack, const Kind& kind, std::size_t layer, Value* x,
                      const std::vector<Value*>& states) {
  const Layer plain = plain_layer(ctx, stack, kind, layer, x, states);
  const std::int64_t count = stack.is_bidirectional ? 2 : 1;
  std::vector<Value*> inputs = {x};
  std::vector<Value*> of_input;
  std::vector<Value*> of_state;

  for (std::int64_t i = 0; i < count; ++i) {
    Value* state = ctx.slice(plain.states.front(), 0, i, i + 1);
    inputs.push_back(ctx.where(first_steps(ctx, stack, x, i == 1), state, ctx.number_like(0, state)));
    Value* recurrent = ctx.slice(plain.of_state, 0, i, i + 1);
    Value* zeros = ctx.filled(ctx.sizes_of(recurrent), ctx.number_like(0, recurrent));
    std::vector<Value*> columns = {ctx.slice(plain.of_input, 0, i, i + 1)};
    for (std::int64_t j = 0; j < count; ++j) columns.push_back(i == j ? recurrent : zeros);
    of_input.push_back(ctx.concat(columns, 2));
    Value* projecting = ctx.swap_axes(projection(ctx, stack, layer, static_cast<std::size_t>(i)), 0, 1);
    of_state.push_back(ctx.op("MatMul", {recurrent, projecting}));
  }

  Value* cell = plain.states.at(1);
  Value* zero_state = ctx.filled(ctx.sizes_of(cell), ctx.number_like(0, cell));
  return {ctx.concat(inputs, 2), ctx.concat(of_input, 0), ctx.concat(of_state, 0), {zero_state, cell}};
}

/// [..., directions, batch, hidden] → [..., directions, batch, projected]
Value* projected(LoweringContext& ctx, const Stack& stack, std::size_t layer, Value* states) {
  std::vector<Value*> weights;
  for (std::size_t i = 0; i < stack.directions(); ++i)
    weights.push_back(ctx.unsqueeze(ctx.cast(projection(ctx, stack, layer, i), states->dtype()), {0}));
  return ctx.op("MatMul", {states, ctx.concat(weights, 0)});
}

// ------------------------------------------------------------------------------------------------ layers

/// The outputs of ONNX's operator, by itself, or step by step where the target would lose digits.
std::vector<Value*> computed_layer(LoweringContext& ctx, const Stack& stack, const Kind& kind, const Layer& given,
                                   Value* biases) {
  const DType dtype = given.x->dtype();
  if (lacks_double(ctx, kind.op, dtype)) {
    const std::string_view activation = kind.activations.empty() ? "" : std::string_view(kind.activations.front());
    return recurrent_layer(
        ctx, kind.op,
        {stack.directions(), given.x, given.of_input, given.of_state, biases, stack.lengths, given.states, activation});
  }
  std::vector<Value*> operands = {given.x, given.of_input, given.of_state, biases, stack.lengths};
  operands.insert(operands.end(), given.states.begin(), given.states.end());
  for (Value*& operand : operands) {
    if (operand != nullptr && operand != stack.lengths) operand = ctx.cast(operand, kernel_dtype(ctx, kind.op, dtype));
  }
  return ctx.op_many(kind.op, operands, 1 + given.states.size(), attributes_of(ctx, stack, kind));
}

/// One layer: output, then its last states, one for each of `states`.
std::vector<Value*> run_layer(LoweringContext& ctx, const Stack& stack, const Kind& kind, std::size_t layer, Value* x,
                              const std::vector<Value*>& states) {
  const auto laid_out = stack.is_projected ? projected_layer : plain_layer;
  Value* biases = stack.has_biases ? of_directions(ctx, stack, layer, kind, {2, 3}) : nullptr;
  const Layer given = laid_out(ctx, stack, kind, layer, x, states);
  auto outputs = computed_layer(ctx, stack, kind, given, biases);

  for (std::size_t i = 0; stack.is_projected && i < 2; ++i) outputs[i] = projected(ctx, stack, layer, outputs[i]);
  outputs.front() = joined_directions(ctx, outputs.front(), x, output_width(ctx, stack));
  return outputs;
}

/// What layers give of no sequence, which torch takes, and no sequence of no step: an output of none, and the states,
/// which are those of none.
std::vector<Value*> of_no_sequence(LoweringContext& ctx, const Stack& stack, Value* x,
                                   const std::vector<Value*>& states) {
  std::vector<Value*> results = {ctx.filled({size_of(ctx, x, 0), 0, output_width(ctx, stack)}, ctx.number_like(0, x))};
  results.insert(results.end(), states.begin(), states.end());
  return results;
}

Value* dropped_out(LoweringContext& ctx, Value* x, double probability) {
  if (probability == 0) return x;
  return ctx.op("Dropout", {x, ctx.constant(probability, DType::kFloat32), ctx.constant(true, DType::kBool)});
}

/// The states [layers, batch, …] of x [sequence, batch, features], in a file that stops where there is no sequence or
/// no step, if the target ends the process then. Of the states, which are small: nothing else is copied for it.
std::vector<Value*> with_sequences(LoweringContext& ctx, Value* x, std::vector<Value*> states) {
  if (!departs(ctx, Departure::kRecurrentOfNothing)) return states;
  const std::string reason = "a recurrent layer of no sequence or no step, which the target has no answer for";
  states.front() = whole_if(ctx, find_entries(ctx, x, {0, 1}, reason), states.front());
  return states;
}

/// All layers over [sequence, batch, features]: the output, then the last states.
std::vector<Value*> run_stack(LoweringContext& ctx, const Stack& stack, const Kind& kind, Value* x,
                              const std::vector<Value*>& given) {
  if (ctx.size(x, 1).constant() == 0) return of_no_sequence(ctx, stack, x, given);
  const std::vector<Value*> states = with_sequences(ctx, x, given);
  std::vector<std::vector<Value*>> last_states(states.size());
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(stack.layers); ++layer) {
    const auto outputs =
        run_layer(ctx, stack, kind, layer, layer == 0 ? x : dropped_out(ctx, x, stack.dropout), states);
    x = outputs.front();
    for (std::size_t i = 0; i < states.size(); ++i) last_states[i].push_back(outputs[i + 1]);
  }
  std::vector<Value*> results = {x};
  for (const auto& layers : last_states) results.push_back(ctx.concat(layers, 0));
  return results;
}

void lower_padded(LoweringContext& ctx, const Kind& kind, const std::vector<Value*>& states) {
  Stack stack = stack_at(ctx, 2);
  stack.is_batch_first = ctx.flag(8);
  Value* x = stack.is_batch_first ? ctx.swap_axes(ctx.input(0), 0, 1) : ctx.input(0);
  std::vector<Value*> results = run_stack(ctx, stack, kind, x, states);
  if (stack.is_batch_first) results.front() = ctx.swap_axes(results.front(), 0, 1);
  ctx.results(results);
}

void lower_lstm(LoweringContext& ctx) { lower_padded(ctx, lstm_kind(), ctx.inputs(1)); }
void lower_gru(LoweringContext& ctx) { lower_padded(ctx, gru_kind(), {ctx.input(1)}); }
void lower_rnn_tanh(LoweringContext& ctx) { lower_padded(ctx, tanh_kind(), {ctx.input(1)}); }
void lower_rnn_relu(LoweringContext& ctx) { lower_padded(ctx, relu_kind(), {ctx.input(1)}); }

// ------------------------------------------------------------------------------------------------ packed sequences

/// Layers over packed elements: they are laid out as [sequence, batch, features], the layers are told the lengths, and
/// what they give is packed again.
void lower_packed(LoweringContext& ctx, const Kind& kind, const std::vector<Value*>& states) {
  Stack stack = stack_at(ctx, 3);
  const PackedLayout layout = layout_of_batches(ctx, ctx.input(1), size_of(ctx, states.front(), 1));
  stack.lengths = ctx.cast(layout.lengths, DType::kInt32);
  std::vector<Value*> results = run_stack(ctx, stack, kind, unpacked(ctx, layout, ctx.input(0)), states);
  results.front() = packed(ctx, layout, results.front());
  ctx.results(results);
}

void lower_packed_lstm(LoweringContext& ctx) { lower_packed(ctx, lstm_kind(), ctx.inputs(2)); }
void lower_packed_gru(LoweringContext& ctx) { lower_packed(ctx, gru_kind(), {ctx.input(2)}); }
void lower_packed_rnn_tanh(LoweringContext& ctx) { lower_packed(ctx, tanh_kind(), {ctx.input(2)}); }
void lower_packed_rnn_relu(LoweringContext& ctx) { lower_packed(ctx, relu_kind(), {ctx.input(2)}); }

}  // namespace

void populate_recurrent(LoweringTable& table) {
  table.add("aten.lstm.input", lower_lstm);
  table.add("aten.gru.input", lower_gru);
  table.add("aten.rnn_tanh.input", lower_rnn_tanh);
  table.add("aten.rnn_relu.input", lower_rnn_relu);
  table.add("aten.lstm.data", lower_packed_lstm);
  table.add("aten.gru.data", lower_packed_gru);
  table.add("aten.rnn_tanh.data", lower_packed_rnn_tanh);
  table.add("aten.rnn_relu.data", lower_packed_rnn_relu);
}

}  // namespace exportguard::lowering
