// Concat, Split, Slice, Pad, Trilu, CenterCropPad.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>

#include <algorithm>
#include <numeric>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;
using Sizes = std::vector<std::int64_t>;

void run_concat(Call& call) {
  std::vector<Tensor> parts;
  for (std::size_t i = 0; i < call.input_count(); ++i) parts.push_back(as_bits(call.input(i)));
  call.require(!parts.empty(), "it needs an input");
  const std::int64_t axis = call.axis(call.integer("axis"), parts.front().dim());
  for (const Tensor& part : parts) {  // torch lets an empty vector pass whatever the rank
    call.require(part.dim() == parts.front().dim(), "its inputs must have one rank");
  }
  call.result(at::cat(parts, axis).view(call.input(0).scalar_type()), call.dtype(0));
}

Sizes equal_parts(const Call& call, std::int64_t size, std::int64_t count) {
  call.require(count > 0 && count < (1 << 20), "num_outputs must be the number of its outputs");
  const std::int64_t step = (size + count - 1) / count;
  Sizes parts;
  for (std::int64_t done = 0; static_cast<std::int64_t>(parts.size()) < count; done += step) {
    parts.push_back(std::clamp<std::int64_t>(size - done, 0, step));
  }
  return parts;
}

void run_split(Call& call) {
  const Tensor& x = call.input(0);
  const std::int64_t axis = call.axis(call.integer("axis", 0), x.dim());
  const std::int64_t count = call.integer("num_outputs", static_cast<std::int64_t>(call.output_count()));
  const auto given = call.find_integers("split", 1);
  const Sizes parts = given ? *given : equal_parts(call, x.size(axis), count);
  const auto fits = [&](std::int64_t part) { return part >= 0 && part <= x.size(axis); };
  call.require(std::ranges::all_of(parts, fits), "a part is not between 0 and the size of the axis");
  const std::int64_t sum = std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
  call.require(sum == x.size(axis), "its parts do not add up to the size of the axis");
  std::int64_t start = 0;
  for (const std::int64_t size : parts) {
    call.result(x.narrow(axis, start, size), call.dtype(0));
    start += size;
  }
}

// ---------------------------------------------------------------- Slice

struct Range {
  std::int64_t start;
  std::int64_t end;
  std::int64_t step;
};

// Negative positions count from the end, and those beyond the ends are cut off: a start is then the position of an
// element, whatever the step, which Python does otherwise.
Range within(const Call& call, Range range, std::int64_t size) {
  call.require(range.step != 0, "a step is 0");
  if (size == 0) return {0, 0, range.step};
  const auto from_front = [&](std::int64_t position) { return position < 0 ? position + size : position; };
  const std::int64_t low = range.step > 0 ? 0 : -1;
  const std::int64_t high = range.step > 0 ? size : size - 1;
  return {std::clamp<std::int64_t>(from_front(range.start), 0, high), std::clamp(from_front(range.end), low, high),
          range.step};
}

Tensor sliced(const Tensor& x, std::int64_t axis, const Range& range) {
  if (range.step > 0) return x.slice(axis, range.start, std::max(range.end, range.start), range.step);
  const std::int64_t count = range.start > range.end ? (range.start - range.end - 1) / -range.step + 1 : 0;
  if (count == 0) return x.narrow(axis, 0, 0);
  const std::int64_t last = range.start + (count - 1) * range.step;
  const Tensor forward = x.slice(axis, last, range.start + 1, -range.step);
  return moved(forward, [&](const Tensor& bits) { return bits.flip(axis); });
}

void run_slice(Call& call) {
  Tensor x = call.input(0);
  const Sizes starts = call.find_integers("starts", 1).value_or(Sizes{});
  const Sizes ends = call.find_integers("ends", 2).value_or(Sizes{});
  Sizes axes(starts.size());
  std::iota(axes.begin(), axes.end(), 0);
  axes = call.axes(call.find_integers("axes", 3).value_or(std::move(axes)), x.dim());
  const Sizes steps = call.has(4) ? call.ints(4) : Sizes(starts.size(), 1);
  const bool is_whole = ends.size() == starts.size() && axes.size() == starts.size() && steps.size() == starts.size();
  call.require(is_whole, "starts, ends, axes and steps must be as many");
  for (std::size_t i = 0; i < starts.size(); ++i) {
    constexpr std::int64_t kFar = std::int64_t{1} << 62;  // the least number has no counterpart
    const Range range{std::clamp(starts[i], -kFar, kFar), std::clamp(ends[i], -kFar, kFar),
                      std::clamp(steps[i], -kFar, kFar)};
    x = sliced(x, axes[i], within(call, range, x.size(axes[i])));
  }
  call.result(x, call.dtype(0));
}

// ---------------------------------------------------------------- Pad

std::int64_t reflected(std::int64_t position, std::int64_t size) {
  if (size == 1) return 0;
  const std::int64_t period = 2 * (size - 1);
  const std::int64_t within_period = ((position % period) + period) % period;
  return within_period < size ? within_period : period - within_period;
}

std::int64_t source_of(std::int64_t position, std::int64_t size, const std::string& mode) {
  if (mode == "edge") return std::clamp<std::int64_t>(position, 0, size - 1);
  return mode == "wrap" ? ((position % size) + size) % size : reflected(position, size);
}

Tensor padded_with_elements(const Call& call, const Tensor& x, std::int64_t axis, std::int64_t before,
                            std::int64_t after) {
  const std::string mode = call.text("mode", "constant");
  const std::int64_t size = x.size(axis);
  call.require(size > 0 || before + after == 0, "an axis without elements cannot be padded with them");
  const Tensor positions = at::arange(-before, size + after, at::kLong);
  std::int64_t* numbers = positions.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < positions.numel(); ++i) numbers[i] = source_of(numbers[i], size, mode);
  return x.index_select(axis, positions.to(x.device()));
}

Tensor padded_with(const Tensor& x, std::int64_t axis, std::int64_t before, std::int64_t after, const Tensor& value) {
  const auto block = [&](std::int64_t count) {
    Sizes sizes = x.sizes().vec();
    sizes[static_cast<std::size_t>(axis)] = count;
    return value.to(x.scalar_type()).reshape({}).expand(sizes);
  };
  return at::cat({block(before), x, block(after)}, axis);
}

Tensor padded(const Call& call, Tensor x, std::int64_t axis, std::int64_t before, std::int64_t after) {
  const bool is_cut_within = before >= -x.size(axis) && after >= -x.size(axis);
  call.require(is_cut_within, "more is cut off an axis than it has");
  if (before < 0) x = x.narrow(axis, -before, x.size(axis) + before);
  if (after < 0) x = x.narrow(axis, 0, x.size(axis) + after);
  before = std::max<std::int64_t>(before, 0);
  after = std::max<std::int64_t>(after, 0);
  if (before == 0 && after == 0) return x;
  Sizes sizes = x.sizes().vec();
  const bool is_large = __builtin_add_overflow(before, after, &before) ||
                        __builtin_add_overflow(sizes[static_cast<std::size_t>(axis)], before, &before);
  call.require(!is_large, "a result is too large");
  sizes[static_cast<std::size_t>(axis)] = before;
  call.require_room(sizes);
  before -= x.size(axis) + after;
  const std::string mode = call.text("mode", "constant");
  if (mode != "constant") return padded_with_elements(call, x, axis, before, after);
  const Tensor value = call.has(2) ? as_bits(call.input(2)) : at::full({}, call.number("value", 0.0), x.options());
  return padded_with(x, axis, before, after, value);
}

void run_pad(Call& call) {
  Tensor x = as_bits(call.input(0));
  const Sizes pads = call.find_integers("pads", 1).value_or(Sizes{});
  Sizes axes(static_cast<std::size_t>(x.dim()));
  std::iota(axes.begin(), axes.end(), 0);
  if (call.has(3)) axes = call.axes(call.ints(3), x.dim());
  call.require(pads.size() == 2 * axes.size(), "it needs two numbers for each axis");
  const std::string mode = call.text("mode", "constant");
  const bool is_known = mode == "constant" || mode == "reflect" || mode == "edge" || mode == "wrap";
  call.require(is_known, "mode must be constant, reflect, edge or wrap");
  for (std::size_t i = 0; i < axes.size(); ++i) x = padded(call, x, axes[i], pads[i], pads[i + axes.size()]);
  call.result(x.view(call.input(0).scalar_type()), call.dtype(0));
}

// Cut or padded on both sides, the larger half behind where it is odd.
void run_center_crop_pad(Call& call) {
  Tensor x = as_bits(call.input(0));
  const Sizes sizes = call.ints(1);
  Sizes axes(static_cast<std::size_t>(x.dim()));
  std::iota(axes.begin(), axes.end(), 0);
  axes = call.axes(call.integers("axes", std::move(axes)), x.dim());
  call.require(sizes.size() == axes.size(), "it needs one size for each axis");
  for (std::size_t i = 0; i < axes.size(); ++i) {
    call.require(sizes[i] >= 0, "a size must not be negative");
    const std::int64_t missing = sizes[i] - x.size(axes[i]);
    if (missing < 0) x = x.narrow(axes[i], -missing / 2, sizes[i]);
    if (missing <= 0) continue;
    Sizes wanted = x.sizes().vec();
    wanted[static_cast<std::size_t>(axes[i])] = sizes[i];
    call.require_room(wanted);
    x = padded_with(x, axes[i], missing / 2, missing - missing / 2, at::full({}, 0, x.options()));
  }
  call.result(x.view(call.input(0).scalar_type()), call.dtype(0));
}

void run_trilu(Call& call) {
  const std::int64_t diagonal = call.has(1) ? call.integer(1) : 0;
  const bool is_upper = call.flag("upper", true);
  call.result(
      moved(call.input(0), [&](const Tensor& x) { return is_upper ? at::triu(x, diagonal) : at::tril(x, diagonal); }),
      call.dtype(0));
}

}  // namespace

void populate_joining(OperatorTable& table) {
  table.add("Concat", run_concat);
  table.add("Split", run_split);
  table.add("Slice", run_slice);
  table.add("Pad", run_pad);
  table.add("CenterCropPad", run_center_crop_pad);
  table.add("Trilu", run_trilu);
}

}  // namespace exportguard::evaluator
