// RNN, GRU, LSTM. float16 and bfloat16 are computed in float32.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/celu.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;

struct Activation {
  std::string name;  // in lower case
  double alpha;
  double beta;

  Tensor operator()(const Call& call, const Tensor& x) const {
    if (name == "sigmoid") return x.sigmoid();
    if (name == "tanh") return x.tanh();
    if (name == "relu") return x.relu();
    if (name == "affine") return x.mul(alpha).add(beta);
    if (name == "leakyrelu") return at::leaky_relu(x, alpha);
    if (name == "thresholdedrelu") return at::where(x.gt(alpha), x, at::zeros_like(x));
    if (name == "scaledtanh") return x.mul(beta).tanh().mul(alpha);
    if (name == "hardsigmoid") return x.mul(alpha).add(beta).clamp(0, 1);
    if (name == "elu") return at::elu(x, alpha);
    if (name == "softsign") return x.div(x.abs().add(1));
    if (name == "softplus") return x.exp().log1p();
    call.fail("there is no activation " + name);
  }
};

double default_alpha(const std::string& name) {
  if (name == "leakyrelu") return 0.01;
  return name == "hardsigmoid" ? 0.2 : 1.0;
}

// The activations of one direction, `count` of them.
std::vector<Activation> activations(const Call& call, std::size_t direction, const std::vector<std::string>& usual) {
  std::vector<std::string> names = call.texts("activations");
  const std::vector<double> alphas = call.numbers("activation_alpha");
  const std::vector<double> betas = call.numbers("activation_beta");
  const bool is_given = !names.empty();
  call.require(!is_given || names.size() >= (direction + 1) * usual.size(), "activations are too few");
  std::vector<Activation> result;
  for (std::size_t i = 0; i < usual.size(); ++i) {
    const std::size_t at = direction * usual.size() + i;
    std::string name = is_given ? names[at] : usual[i];
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const double alpha = at < alphas.size() ? alphas[at] : default_alpha(name);
    const double beta = at < betas.size() ? betas[at] : (name == "hardsigmoid" ? 0.5 : 1.0);
    result.push_back({std::move(name), alpha, beta});
  }
  return result;
}

// One direction: its weights, and the state that goes from step to step.
struct Cell {
  const Call& call;
  std::vector<Activation> f;
  Tensor w;          // [gates * hidden, input]
  Tensor r;          // [gates * hidden, hidden]
  Tensor b;          // [2 * gates * hidden], for the input and for the state
  Tensor peepholes;  // [3 * hidden] of an LSTM, or undefined
  std::int64_t hidden;

  Tensor clipped(const Tensor& x) const {
    const double clip = call.number("clip", 0.0);
    return clip > 0 ? x.clamp(-clip, clip) : x;
  }
  Tensor activated(std::size_t i, const Tensor& x) const { return f[i](call, clipped(x)); }
  Tensor input_bias() const { return b.narrow(0, 0, b.size(0) / 2); }
  Tensor state_bias() const { return b.narrow(0, b.size(0) / 2, b.size(0) / 2); }
};

struct State {
  Tensor h;
  Tensor c;  // of an LSTM
};

using Step = State (*)(const Cell& cell, const Tensor& x, const State& state);

State rnn_step(const Cell& cell, const Tensor& x, const State& state) {
  const Tensor sum = x.matmul(cell.w.t()).add(cell.input_bias()).add(state.h.matmul(cell.r.t())).add(cell.state_bias());
  return {cell.activated(0, sum), {}};
}

// Gates z, r, h. `linear_before_reset` applies the reset gate behind the product with the state.
State gru_step(const Cell& cell, const Tensor& x, const State& state) {
  const std::int64_t n = cell.hidden;
  const Tensor from_input = x.matmul(cell.w.t()).add(cell.input_bias());
  const Tensor state_bias = cell.state_bias();
  const auto gate = [&](const Tensor& whole, std::int64_t i, std::int64_t count) {
    return whole.narrow(-1, i * n, count * n);
  };
  const Tensor two =
      gate(from_input, 0, 2).add(state.h.matmul(cell.r.narrow(0, 0, 2 * n).t())).add(gate(state_bias, 0, 2));
  const Tensor z = cell.activated(0, gate(two, 0, 1));
  const Tensor reset = cell.activated(0, gate(two, 1, 1));
  const Tensor r = cell.r.narrow(0, 2 * n, n).t();
  const Tensor bias = gate(state_bias, 2, 1);
  const bool is_behind = cell.call.flag("linear_before_reset");
  const Tensor from_state = is_behind ? reset.mul(state.h.matmul(r).add(bias)) : reset.mul(state.h).matmul(r).add(bias);
  const Tensor candidate = cell.activated(1, gate(from_input, 2, 1).add(from_state));
  return {candidate.sub(z.mul(candidate)).add(z.mul(state.h)), {}};
}

// Gates i, o, f, c. `input_forget` couples the forget gate to the input gate.
State lstm_step(const Cell& cell, const Tensor& x, const State& state) {
  const std::int64_t n = cell.hidden;
  const Tensor all = x.matmul(cell.w.t()).add(cell.input_bias()).add(state.h.matmul(cell.r.t())).add(cell.state_bias());
  const auto gate = [&](std::int64_t i) { return all.narrow(-1, i * n, n); };
  const auto peephole = [&](std::int64_t i, const Tensor& c) {
    return cell.peepholes.defined() ? cell.peepholes.narrow(0, i * n, n).mul(c) : at::zeros_like(c);
  };
  const Tensor in = cell.activated(0, gate(0).add(peephole(0, state.c)));
  const bool is_coupled = cell.call.flag("input_forget");
  const Tensor forget = is_coupled ? in.neg().add(1) : cell.activated(0, gate(2).add(peephole(2, state.c)));
  const Tensor c = forget.mul(state.c).add(in.mul(cell.activated(1, gate(3))));
  const Tensor out = cell.activated(0, gate(1).add(peephole(1, c)));
  return {out.mul(cell.f[2](cell.call, c)), c};
}

struct Kind {
  std::int64_t gates;
  std::vector<std::string> activations;
  Step step;
};

struct Sequence {
  Tensor x;                       // [length, batch, input]
  std::optional<Tensor> lengths;  // [batch]
  bool is_reverse;
};

Tensor kept(const Tensor& is_running, const Tensor& now, const Tensor& before) {
  return now.defined() ? at::where(is_running, now, before) : now;
}

// Steps behind the end of a sequence change nothing, and give zeros. Backwards, each sequence starts at its own end.
std::vector<Tensor> run_direction(const Cell& cell, const Sequence& over, State& state, Step step) {
  const std::int64_t length = over.x.size(0);
  std::vector<Tensor> outputs(static_cast<std::size_t>(length));
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int64_t at = over.is_reverse ? length - 1 - i : i;
    State next = step(cell, over.x.select(0, at), state);
    Tensor y = next.h;
    if (over.lengths) {
      const Tensor is_running = over.lengths->gt(at).unsqueeze(-1);
      y = at::where(is_running, next.h, at::zeros_like(next.h));
      next = {kept(is_running, next.h, state.h), kept(is_running, next.c, state.c)};
    }
    state = std::move(next);
    outputs[static_cast<std::size_t>(at)] = y;
  }
  return outputs;
}

Tensor direction_of(const Call& call, std::size_t input, std::int64_t direction) {
  return call.has(input) ? raised(call.input(input).select(0, direction)) : Tensor();
}

void recurrent(Call& call, const Kind& kind) {
  const bool is_batch_first = call.flag("layout");
  const auto by_time = [&](const Tensor& x) { return is_batch_first ? x.transpose(0, 1) : x; };
  const c10::ScalarType type = call.input(0).scalar_type();
  const Tensor x = by_time(raised(call.input(0)));
  call.require(x.dim() == 3 && call.input(2).dim() == 3, "its input and weights must have rank 3");
  const std::int64_t hidden = call.integer("hidden_size", call.input(2).size(2));
  const std::string direction = call.text("direction", "forward");
  const std::int64_t directions = direction == "bidirectional" ? 2 : 1;
  call.require(call.input(1).size(0) == directions && call.input(1).size(1) == kind.gates * hidden,
               "its weights have other sizes than hidden_size says");
  std::optional<Tensor> lengths;
  if (call.has(4)) lengths = call.input(4).to(at::kLong);

  std::vector<Tensor> y;
  std::vector<Tensor> last_h;
  std::vector<Tensor> last_c;
  for (std::int64_t d = 0; d < directions; ++d) {
    Tensor bias = direction_of(call, 3, d);
    if (!bias.defined()) bias = at::zeros({2 * kind.gates * hidden}, x.options());
    const Cell cell{call,
                    activations(call, static_cast<std::size_t>(d), kind.activations),
                    direction_of(call, 1, d),
                    direction_of(call, 2, d),
                    bias,
                    kind.gates == 4 ? direction_of(call, 7, d) : Tensor(),
                    hidden};
    const auto initial = [&](std::size_t input) {
      return call.has(input) ? by_time(raised(call.input(input))).select(0, d)
                             : at::zeros({x.size(1), hidden}, x.options());
    };
    State state{initial(5), kind.gates == 4 ? initial(6) : Tensor()};
    const bool is_reverse = d == 1 || direction == "reverse";
    const std::vector<Tensor> outputs = run_direction(cell, {x, lengths, is_reverse}, state, kind.step);
    y.push_back(outputs.empty() ? at::zeros({0, x.size(1), hidden}, x.options()) : at::stack(outputs));
    last_h.push_back(state.h);
    last_c.push_back(state.c);
  }
  const Tensor all = at::stack(y, 1);  // [length, directions, batch, hidden]
  call.result((is_batch_first ? all.permute({2, 0, 1, 3}) : all).to(type));
  call.result(by_time(at::stack(last_h)).to(type));
  if (kind.gates == 4) call.result(by_time(at::stack(last_c)).to(type));
}

void run_rnn(Call& call) { recurrent(call, {1, {"Tanh"}, rnn_step}); }
void run_gru(Call& call) { recurrent(call, {3, {"Sigmoid", "Tanh"}, gru_step}); }
void run_lstm(Call& call) { recurrent(call, {4, {"Sigmoid", "Tanh", "Tanh"}, lstm_step}); }

}  // namespace

void populate_recurrent(OperatorTable& table) {
  table.add("RNN", run_rnn);
  table.add("GRU", run_gru);
  table.add("LSTM", run_lstm);
}

}  // namespace exportguard::evaluator
