// If, Loop, Scan. Bodies share the values of the graphs around them.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <limits>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"
#include "exportguard/common/torch_dtypes.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;

bool is_true(const Call& call, const Datum& datum) {
  call.require(datum.is_tensor() && datum.tensor.numel() == 1, "a condition must be one bool");
  return datum.tensor.item().toBool();
}

void run_if(Call& call) {
  Data results = call.run_body(is_true(call, call.datum(0)) ? "then_branch" : "else_branch", {});
  for (Datum& result : results) call.result(std::move(result));
}

const ir::Graph& body_of(const Call& call) { return call.node().subgraph("body"); }

// What no iteration made is a tensor without elements, of the dtype and sizes that the body declares.
Tensor empty_stack(const Call& call, std::size_t output) {
  const ir::Type& type = body_of(call).output(output).type();
  std::vector<std::int64_t> sizes{0};
  if (type.shape) {
    for (const ir::Dim& dim : *type.shape) sizes.push_back(dim.constant().value_or(0));
  }
  const c10::ScalarType stored = type.dtype == DType::kUndefined ? at::kFloat : storage_of(type.dtype);
  return at::empty(sizes, at::TensorOptions(stored).device(call.device()));
}

Datum stacked(const Call& call, const Data& parts, std::int64_t axis, std::size_t output) {
  if (parts.empty()) {
    const DType declared = body_of(call).output(output).dtype();
    return Datum::of(empty_stack(call, output), declared == DType::kUndefined ? DType::kFloat32 : declared);
  }
  std::vector<Tensor> tensors;
  for (const Datum& part : parts) {
    call.require(part.is_tensor(), "what a body collects must be tensors");
    tensors.push_back(as_bits(part.tensor));
  }
  const Tensor stack = at::stack(tensors, axis);
  return Datum::of(stack.view(parts.front().tensor.scalar_type()), parts.front().dtype);
}

// What many iterations collect: the next as many again must fit, so that an endless loop ends before the memory does.
void require_room_for_more(const Call& call, const std::vector<Data>& collected, std::int64_t iterations) {
  constexpr std::int64_t kFew = 1 << 10;
  if (iterations < kFew || (iterations & (iterations - 1)) != 0) return;
  for (const Data& parts : collected) {
    if (!parts.empty() && parts.back().is_tensor()) call.require_room({iterations, parts.back().tensor.numel()});
  }
}

void run_loop(Call& call) {
  const std::int64_t most = call.has(0) ? call.integer(0) : std::numeric_limits<std::int64_t>::max();
  bool goes_on = !call.has(1) || is_true(call, call.datum(1));
  Data carried;
  for (std::size_t i = 2; i < call.input_count(); ++i) carried.push_back(call.datum(i));
  const std::size_t output_count = body_of(call).output_count();
  call.require(output_count > carried.size(), "its body has too few outputs");
  std::vector<Data> collected(output_count - 1 - carried.size());

  const auto options = at::TensorOptions(at::kLong).device(call.device());
  for (std::int64_t i = 0; i < most && goes_on; ++i) {
    require_room_for_more(call, collected, i);
    Data inputs{Datum::of(at::full({}, i, options), DType::kInt64),
                Datum::of(at::full({}, true, options.dtype(at::kBool)), DType::kBool)};
    inputs.insert(inputs.end(), carried.begin(), carried.end());
    Data results = call.run_body("body", std::move(inputs));
    goes_on = is_true(call, results.front());
    for (std::size_t k = 0; k < carried.size(); ++k) carried[k] = std::move(results[k + 1]);
    for (std::size_t k = 0; k < collected.size(); ++k)
      collected[k].push_back(std::move(results[k + 1 + carried.size()]));
  }
  for (Datum& value : carried) call.result(std::move(value));
  for (std::size_t k = 0; k < collected.size(); ++k) {
    call.result(stacked(call, collected[k], 0, k + 1 + (call.input_count() - 2)));
  }
}

// ---------------------------------------------------------------- Scan (opset 9 and later)

struct ScanAxes {
  std::vector<std::int64_t> axes;
  std::vector<std::int64_t> reversed;
};

std::int64_t at_or_zero(const std::vector<std::int64_t>& list, std::size_t i) { return i < list.size() ? list[i] : 0; }

void run_scan(Call& call) {
  const std::int64_t scanned = call.integer("num_scan_inputs");
  const auto given = static_cast<std::int64_t>(call.input_count());
  call.require(scanned >= 0 && scanned <= given, "num_scan_inputs is more than there are inputs");
  const auto state_count = static_cast<std::size_t>(given - scanned);
  const ScanAxes in{call.integers("scan_input_axes"), call.integers("scan_input_directions")};
  const ScanAxes out{call.integers("scan_output_axes"), call.integers("scan_output_directions")};
  Data state;
  for (std::size_t i = 0; i < state_count; ++i) state.push_back(call.datum(i));
  std::int64_t length = scanned == 0 ? 0 : std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < static_cast<std::size_t>(scanned); ++i) {
    const Tensor& x = call.input(state_count + i);
    length = std::min(length, x.size(call.axis(at_or_zero(in.axes, i), x.dim())));
  }
  const std::size_t output_count = body_of(call).output_count();
  call.require(output_count >= state_count, "its body has too few outputs");
  std::vector<Data> collected(output_count - state_count);

  for (std::int64_t step = 0; step < length; ++step) {
    Data inputs = state;
    for (std::size_t i = 0; i < static_cast<std::size_t>(scanned); ++i) {
      const Tensor& x = call.input(state_count + i);
      const std::int64_t at = at_or_zero(in.reversed, i) != 0 ? length - 1 - step : step;
      inputs.push_back(
          Datum::of(x.select(call.axis(at_or_zero(in.axes, i), x.dim()), at), call.dtype(state_count + i)));
    }
    Data results = call.run_body("body", std::move(inputs));
    for (std::size_t k = 0; k < state_count; ++k) state[k] = std::move(results[k]);
    for (std::size_t k = 0; k < collected.size(); ++k) collected[k].push_back(std::move(results[state_count + k]));
  }
  for (Datum& value : state) call.result(std::move(value));
  for (std::size_t k = 0; k < collected.size(); ++k) {
    if (at_or_zero(out.reversed, k) != 0) std::ranges::reverse(collected[k]);
    const bool is_empty = collected[k].empty();
    const std::int64_t rank = is_empty ? 0 : collected[k].front().tensor.dim() + 1;
    const std::int64_t axis = is_empty ? 0 : call.axis(at_or_zero(out.axes, k), rank);
    call.result(stacked(call, collected[k], axis, state_count + k));
  }
}

}  // namespace

void populate_control_flow(OperatorTable& table) {
  table.add("If", run_if);
  table.add("Loop", run_loop);
  table.add("Scan", run_scan);
}

}  // namespace exportguard::evaluator
