#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "exportguard/lowering/context.h"

/// Recurrent layers as one step after the other, for cells, and for who has no kernel of the layer in a dtype.
namespace exportguard::lowering {

struct LstmGates {
  Value* input;
  Value* forget;
  Value* cell;
  Value* output;
};

/// The new hidden state and the new cell.
std::vector<Value*> lstm_step(LoweringContext& ctx, const LstmGates& gates, Value* cell);

/// The three gates of a GRU from the input and from the state.
struct GruGates {
  std::vector<Value*> of_input;  ///< reset, update, new
  std::vector<Value*> of_state;
};

Value* gru_step(LoweringContext& ctx, const GruGates& gates, Value* state);

/// `count` equal parts of the last axis.
std::vector<Value*> split_gates(LoweringContext& ctx, Value* gates, std::size_t count);

/// What one of ONNX's operators LSTM, GRU (with `linear_before_reset`) and RNN is given.
struct RecurrentOperands {
  std::size_t directions;
  Value* x;                     ///< [sequence, batch, features]
  Value* of_input;              ///< [directions, gates, features], the gates in ONNX's order
  Value* of_state;              ///< [directions, gates, hidden]
  Value* biases;                ///< [directions, 2 gates]; null: none
  Value* lengths;               ///< int32[batch]; null: all steps
  std::vector<Value*> states;   ///< [directions, batch, hidden] each
  std::string_view activation;  ///< of RNN
};

/// What the operator gives, all of it in the dtype of `x`: [sequence, directions, batch, hidden], then the last states.
std::vector<Value*> recurrent_layer(LoweringContext& ctx, std::string_view op, const RecurrentOperands& given);

}  // namespace exportguard::lowering
