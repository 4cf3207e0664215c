#include "lowering/recurrent_steps.h"

#include <cstdint>
#include <limits>

#include "lowering/contraction.h"
#include "lowering/iteration.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {

std::vector<Value*> split_gates(LoweringContext& ctx, Value* gates, std::size_t count) {
  return ctx.op_many("Split", {gates}, count, {{"axis", -1}, {"num_outputs", static_cast<std::int64_t>(count)}});
}

std::vector<Value*> lstm_step(LoweringContext& ctx, const LstmGates& gates, Value* cell) {
  Value* kept = ctx.op("Mul", {ctx.op("Sigmoid", {gates.forget}), cell});
  Value* taken = ctx.op("Mul", {ctx.op("Sigmoid", {gates.input}), ctx.op("Tanh", {gates.cell})});
  Value* next = ctx.op("Add", {kept, taken});
  return {ctx.op("Mul", {ctx.op("Sigmoid", {gates.output}), ctx.op("Tanh", {next})}), next};
}

Value* gru_step(LoweringContext& ctx, const GruGates& gates, Value* state) {
  const auto& of_input = gates.of_input;
  const auto& of_state = gates.of_state;
  Value* reset = ctx.op("Sigmoid", {ctx.op("Add", {of_input[0], of_state[0]})});
  Value* update = ctx.op("Sigmoid", {ctx.op("Add", {of_input[1], of_state[1]})});
  Value* fresh = ctx.op("Tanh", {ctx.op("Add", {of_input[2], ctx.op("Mul", {reset, of_state[2]})})});
  return ctx.op("Add", {fresh, ctx.op("Mul", {update, ctx.op("Sub", {state, fresh})})});
}

namespace {

/// Of one direction: [rows, columns], or [rows].
Value* of_direction(LoweringContext& ctx, Value* stacked, std::int64_t direction) {
  return ctx.gather(stacked, ctx.constant(direction, DType::kInt64), 0);
}

/// One direction of a layer, its parts taken out of the operator's operands.
struct Direction {
  Value* from_input;  ///< [sequence, batch, gates], biases of the input among them
  Value* weight;      ///< [hidden, gates]
  Value* bias;        ///< [gates], of the state; null: none
  bool is_backward;
};

Direction direction_of(LoweringContext& ctx, const RecurrentOperands& given, std::int64_t which) {
  const auto transposed = [&](Value* stacked) { return ctx.swap_axes(of_direction(ctx, stacked, which), 0, 1); };
  Value* from_input = matmul(ctx, given.x, transposed(given.of_input));
  if (given.biases == nullptr) return {from_input, transposed(given.of_state), nullptr, which == 1};
  const auto halves = split_gates(ctx, of_direction(ctx, given.biases, which), 2);
  return {ctx.op("Add", {from_input, halves[0]}), transposed(given.of_state), halves[1], which == 1};
}

/// ONNX's orders: input, output, forget, cell; update, reset, new.
std::vector<Value*> next_states(LoweringContext& ctx, std::string_view op, const RecurrentOperands& given,
                                const std::vector<Value*>& gates, const std::vector<Value*>& states) {
  Value* of_input = gates[0];
  Value* of_state = gates[1];
  if (op == "GRU") {
    const auto a = split_gates(ctx, of_input, 3);
    const auto b = split_gates(ctx, of_state, 3);
    return {gru_step(ctx, {{a[1], a[0], a[2]}, {b[1], b[0], b[2]}}, states[0])};
  }
  Value* both = ctx.op("Add", {of_input, of_state});
  if (op == "RNN") return {ctx.op(given.activation, {both})};
  const auto parts = split_gates(ctx, both, 4);
  return lstm_step(ctx, {parts[0], parts[2], parts[3], parts[1]}, states[1]);
}

/// A sequence that has ended, or not begun, keeps its state and gives zeros.
void mask_steps(LoweringContext& ctx, Value* lengths, Value* place, const std::vector<Value*>& before, Step& step) {
  Value* takes_part = ctx.op("Less", {ctx.cast(place, DType::kInt32), ctx.unsqueeze(lengths, {1})});
  for (std::size_t i = 0; i < before.size(); ++i) step.state[i] = ctx.where(takes_part, step.state[i], before[i]);
  Value* given = step.collected.front();
  step.collected.front() = ctx.where(takes_part, given, ctx.number_like(0, given));
}

/// [sequence, batch, hidden], then the last states [batch, hidden].
std::vector<Value*> run_direction(LoweringContext& ctx, std::string_view op, const RecurrentOperands& given,
                                  const Direction& direction, const std::vector<Value*>& initial) {
  Value* count = as_scalar(ctx, size_of(ctx, given.x, 0));
  const auto write = [&](Value* iteration, const std::vector<Value*>& state) {
    Value* place = iteration;
    if (direction.is_backward)
      place = ctx.op("Sub", {ctx.op("Sub", {count, ctx.constant(1, DType::kInt64)}), iteration});
    Value* of_state = matmul(ctx, state[0], direction.weight);
    if (direction.bias) of_state = ctx.op("Add", {of_state, direction.bias});
    const std::vector<Value*> gates = {ctx.gather(direction.from_input, place, 0), of_state};
    std::vector<Value*> next = next_states(ctx, op, given, gates, state);
    Step step = {next, nullptr, {next.front()}};
    if (given.lengths) mask_steps(ctx, given.lengths, place, state, step);
    return step;
  };
  std::vector<Value*> results = repeated(ctx, count, initial, write, 1);

  Value* steps = results.back();
  results.pop_back();
  if (direction.is_backward) steps = ctx.slice(steps, 0, -1, std::numeric_limits<std::int64_t>::min() + 1, -1);
  results.insert(results.begin(), steps);
  return results;
}

}  // namespace

std::vector<Value*> recurrent_layer(LoweringContext& ctx, std::string_view op, const RecurrentOperands& given) {
  std::vector<std::vector<Value*>> parts(1 + given.states.size());
  for (std::int64_t which = 0; which < static_cast<std::int64_t>(given.directions); ++which) {
    std::vector<Value*> initial;
    for (Value* state : given.states) initial.push_back(of_direction(ctx, state, which));
    const auto results = run_direction(ctx, op, given, direction_of(ctx, given, which), initial);
    for (std::size_t i = 0; i < results.size(); ++i) parts[i].push_back(ctx.unsqueeze(results[i], {i == 0 ? 1 : 0}));
  }

  std::vector<Value*> outputs;
  for (std::size_t i = 0; i < parts.size(); ++i) outputs.push_back(ctx.concat(parts[i], i == 0 ? 1 : 0));
  return outputs;
}

}  // namespace exportguard::lowering
