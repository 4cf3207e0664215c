#include "exportguard/ir/inference.h"

namespace exportguard::ir {
namespace {

/// Size of the hidden state: the recurrent weight is [directions, gates * hidden, hidden].
Dim hidden_size(const InferenceContext& ctx) {
  if (const std::int64_t given = ctx.integer("hidden_size", 0); given > 0) return given;
  const auto weight = ctx.shape(2);
  return weight && weight->size() == 3 ? weight->back() : ctx.fresh();
}

void infer_recurrent(InferenceContext& ctx) {
  const auto data = ctx.shape(0);
  if (data && data->size() != 3) ctx.fail("the operand must have rank 3");
  const Dim directions = ctx.text("direction", "forward") == "bidirectional" ? 2 : 1;
  const Dim hidden = hidden_size(ctx);
  const bool batch_first = ctx.integer("layout", 0) != 0;
  const Dim batch = data ? (*data)[batch_first ? 0 : 1] : ctx.fresh();
  const Dim steps = data ? (*data)[batch_first ? 1 : 0] : ctx.fresh();
  ctx.set(0, ctx.dtype(0),
          batch_first ? Shape{batch, steps, directions, hidden} : Shape{steps, directions, batch, hidden});
  const Shape state = batch_first ? Shape{batch, directions, hidden} : Shape{directions, batch, hidden};
  ctx.set(1, ctx.dtype(0), state);
  ctx.set(2, ctx.dtype(0), state);  // LSTM's cells
}

}  // namespace

void populate_recurrent(InferenceTable& table) { table.add({"GRU", "LSTM", "RNN"}, infer_recurrent); }

}  // namespace exportguard::ir
