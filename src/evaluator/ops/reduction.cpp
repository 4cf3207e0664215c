// Reductions: sums of float16 and bfloat16 are accumulated in float32, those of integers in their own dtype.
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"
#include "exportguard/common/torch_dtypes.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;
using Axes = std::vector<std::int64_t>;

// What is reduced; nothing if the operator returns its input.
std::optional<Axes> axes_of(const Call& call, std::int64_t rank) {
  std::optional<Axes> axes = call.find_integers("axes", 1);
  if (axes && !axes->empty()) return call.axes(std::move(*axes), rank);
  if (call.flag("noop_with_empty_axes")) return std::nullopt;
  Axes all(static_cast<std::size_t>(rank));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// With no axis to reduce, what is done to each element is still done.
template <typename Reduce>
Tensor reduced(const Call& call, const Tensor& x, Reduce compute) {
  const std::optional<Axes> axes = axes_of(call, x.dim());
  if (axes && !axes->empty()) return compute(x, *axes, call.flag("keepdims", true));
  return compute(x.unsqueeze(-1), Axes{x.dim()}, false);
}

// In the numbers of a dtype, which wrap.
template <typename Reduce>
void reduce(Call& call, Reduce compute) {
  const Tensor& x = call.input(0);
  call.result(narrowed(reduced(call, widened(x), compute), x.scalar_type()));
}

Tensor sum(const Tensor& x, const Axes& axes, bool keep) {
  return is_reduced(x.scalar_type()) ? x.sum(axes, keep, at::kFloat) : x.sum(axes, keep, x.scalar_type());
}

template <typename Compute>
void reduce_sum_of(Call& call, Compute element) {
  reduce(call, [&](const Tensor& x, const Axes& axes, bool keep) {
    return sum(element(raised(x)), axes, keep).to(x.scalar_type());
  });
}

void run_sum(Call& call) {
  reduce_sum_of(call, [](const Tensor& x) { return x; });
}
void run_l1(Call& call) {
  // What has no sign is its own absolute value: the highest of 64 bits is none.
  const bool is_wide = is_wide_unsigned(call.input(0).scalar_type());
  reduce_sum_of(call, [&](const Tensor& x) { return is_wide ? x : x.abs(); });
}
void run_sum_square(Call& call) {
  reduce_sum_of(call, [](const Tensor& x) { return x.square(); });
}

// Roots and logarithms of integers are computed in float64.
Tensor as_real(const Tensor& x) { return at::isFloatingType(x.scalar_type()) ? raised(x) : x.to(at::kDouble); }

template <typename Reduce>
void reduce_reals(Call& call, Reduce compute) {
  const Tensor& x = call.input(0);
  call.result(reduced(call, as_real(x), compute).to(x.scalar_type()));
}

void run_l2(Call& call) {
  reduce_reals(call, [](const Tensor& x, const Axes& axes, bool keep) { return x.square().sum(axes, keep).sqrt(); });
}
void run_log_sum(Call& call) {
  reduce_reals(call, [](const Tensor& x, const Axes& axes, bool keep) { return x.sum(axes, keep).log(); });
}
void run_log_sum_exp(Call& call) {
  reduce_reals(call, [](const Tensor& x, const Axes& axes, bool keep) { return at::logsumexp(x, axes, keep); });
}
void run_mean(Call& call) {
  reduce_reals(call, [](const Tensor& x, const Axes& axes, bool keep) { return x.mean(axes, keep); });
}

void run_prod(Call& call) {
  reduce(call, [](const Tensor& x, Axes axes, bool keep) {
    std::ranges::sort(axes);
    Tensor result = raised(x);
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis)
      result = result.prod(*axis, keep, result.scalar_type());
    return result.to(x.scalar_type());
  });
}

at::Scalar lowest(c10::ScalarType type) {
  if (type == at::kBool) return false;
  if (at::isFloatingType(type)) return -std::numeric_limits<double>::infinity();
  switch (type) {
    case at::kByte:
      return 0;
    case at::kChar:
      return std::numeric_limits<std::int8_t>::min();
    case at::kShort:
      return std::numeric_limits<std::int16_t>::min();
    case at::kInt:
      return std::numeric_limits<std::int32_t>::min();
    default:
      return std::numeric_limits<std::int64_t>::min();
  }
}

at::Scalar highest(c10::ScalarType type) {
  if (type == at::kBool) return true;
  if (at::isFloatingType(type)) return std::numeric_limits<double>::infinity();
  switch (type) {
    case at::kByte:
      return std::numeric_limits<std::uint8_t>::max();
    case at::kChar:
      return std::numeric_limits<std::int8_t>::max();
    case at::kShort:
      return std::numeric_limits<std::int16_t>::max();
    case at::kInt:
      return std::numeric_limits<std::int32_t>::max();
    default:
      return std::numeric_limits<std::int64_t>::max();
  }
}

// torch refuses to look for an extreme among no elements; ONNX names the least (or largest) value of the dtype.
template <typename Extreme>
void reduce_extreme(Call& call, at::Scalar (*of_nothing)(c10::ScalarType), Extreme extreme) {
  const auto compute = [&](const Tensor& x, const Axes& axes, bool keep) {
    const bool is_empty = std::ranges::any_of(axes, [&](std::int64_t axis) { return x.size(axis) == 0; });
    if (!is_empty) return extreme(x, axes, keep);
    const Tensor shape = at::zeros_like(x).sum(axes, keep);
    return at::full(shape.sizes(), of_nothing(x.scalar_type()), x.options());
  };
  const Tensor& x = call.input(0);
  call.result(from_ordered(reduced(call, ordered(x), compute), x.scalar_type()));
}

void run_max(Call& call) {
  reduce_extreme(call, lowest, [](const Tensor& x, const Axes& axes, bool keep) { return at::amax(x, axes, keep); });
}
void run_min(Call& call) {
  reduce_extreme(call, highest, [](const Tensor& x, const Axes& axes, bool keep) { return at::amin(x, axes, keep); });
}

// ---------------------------------------------------------------- positions of extremes

// Of several equal ones torch takes the first; the last one is the first from the other end.
template <typename Search>
void run_search(Call& call, Search search) {
  const Tensor x = ordered(call.input(0));
  const std::int64_t axis = call.axis(call.integer("axis", 0), x.dim());
  const bool keep = call.flag("keepdims", true);
  if (!call.flag("select_last_index")) return call.result(search(x, axis, keep));
  call.result(search(x.flip(axis), axis, keep).neg().add(x.size(axis) - 1));
}

void run_argmax(Call& call) {
  run_search(call, [](const Tensor& x, std::int64_t axis, bool keep) { return x.argmax(axis, keep); });
}
void run_argmin(Call& call) {
  run_search(call, [](const Tensor& x, std::int64_t axis, bool keep) { return x.argmin(axis, keep); });
}

// ---------------------------------------------------------------- along an axis

template <typename Accumulate>
void run_cumulative(Call& call, Accumulate accumulate, double neutral) {
  const Tensor& x = call.input(0);
  const std::int64_t axis = call.axis(call.integer(1), x.dim());
  const bool is_reverse = call.flag("reverse");
  Tensor values = raised(is_reverse ? x.flip(axis) : x);
  Tensor result = accumulate(values, axis).to(x.scalar_type());
  if (call.flag("exclusive") && x.size(axis) > 0) {
    const Tensor before = at::full(x.narrow(axis, 0, 1).sizes(), neutral, x.options());
    result = at::cat({before, result.narrow(axis, 0, x.size(axis) - 1)}, axis);
  }
  call.result(is_reverse ? result.flip(axis) : result);
}

void run_cumsum(Call& call) {
  run_cumulative(call, [](const Tensor& x, std::int64_t axis) { return x.cumsum(axis, x.scalar_type()); }, 0);
}
void run_cumprod(Call& call) {
  run_cumulative(call, [](const Tensor& x, std::int64_t axis) { return x.cumprod(axis, x.scalar_type()); }, 1);
}

}  // namespace

void populate_reduction(OperatorTable& table) {
  table.add("ReduceSum", run_sum);
  table.add("ReduceL1", run_l1);
  table.add("ReduceSumSquare", run_sum_square);
  table.add("ReduceL2", run_l2);
  table.add("ReduceLogSum", run_log_sum);
  table.add("ReduceLogSumExp", run_log_sum_exp);
  table.add("ReduceMean", run_mean);
  table.add("ReduceProd", run_prod);
  table.add("ReduceMax", run_max);
  table.add("ReduceMin", run_min);
  table.add("ArgMax", run_argmax);
  table.add("ArgMin", run_argmin);
  table.add("CumSum", run_cumsum);
  table.add("CumProd", run_cumprod);
}

}  // namespace exportguard::evaluator
