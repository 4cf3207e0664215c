#include "lowering/fourier.h"

#include <cmath>

#include "lowering/axes.h"
#include "lowering/number_lists.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

std::int64_t last_axis(LoweringContext& ctx, const Value* signal) {
  return static_cast<std::int64_t>(ctx.rank(signal)) - 1;
}

Value* column(LoweringContext& ctx, Value* signal, std::int64_t i) {
  return ctx.gather(signal, ctx.constant(i, DType::kInt64), last_axis(ctx, signal));
}

bool is_real(LoweringContext& ctx, const Value* signal) { return ctx.size(signal, -1).constant() == 1; }

Value* conjugated(LoweringContext& ctx, Value* signal) {
  if (is_real(ctx, signal)) return signal;
  return ctx.op("Mul", {signal, doubles(ctx, {1, -1}, DType::kFloat64)});
}

/// Forward alone: a target may scale the inverse of float64 by a float32.
Value* forward(LoweringContext& ctx, Value* signal, std::int64_t axis) {
  if (ctx.opset() < 20) return ctx.op("DFT", {signal}, {{"axis", axis}});
  return ctx.op("DFT", {signal, nullptr, ctx.constant(axis, DType::kInt64)});
}

Value* forward(LoweringContext& ctx, Value* signal, const std::vector<std::int64_t>& axes) {
  for (const std::int64_t axis : axes) signal = forward(ctx, signal, axis);
  return signal;
}

Size halved(LoweringContext& ctx, const Size& size) {
  return size.number() ? Size(*size.number() / 2) : Size(ctx.op("Div", {as_dim(ctx, size), ctx.ints({2})}));
}

/// The spectrum of a real signal, or half of it: the first entry is real, and of an even number of samples the middle
/// one. What rounding leaves there turns a phase of pi into one of minus pi.
Value* real_where_exact(LoweringContext& ctx, Value* spectrum, std::int64_t axis, const Size& samples) {
  Value* place = range(ctx, size_of(ctx, spectrum, axis));
  Value* is_middle = ctx.op("Equal", {ctx.op("Mul", {place, ctx.ints({2})}), as_dim(ctx, samples)});
  Value* is_exact = ctx.op("Or", {ctx.op("Equal", {place, ctx.ints({0})}), is_middle});
  is_exact = ctx.unsqueeze(is_exact, counted(static_cast<std::size_t>(last_axis(ctx, spectrum) - axis), 1));
  Value* is_imaginary = ctx.op("Equal", {ctx.ints({0, 1}), ctx.ints({1})});
  return ctx.where(ctx.op("And", {is_exact, is_imaginary}), ctx.number_like(0.0, spectrum), spectrum);
}

/// The product of the sizes of the axes.
Size count_of(LoweringContext& ctx, Value* signal, const std::vector<std::int64_t>& axes) {
  Size count = 1;
  for (const std::int64_t axis : axes) count = multiply(ctx, count, size_of(ctx, signal, axis));
  return count;
}

Value* normalized(LoweringContext& ctx, Normalization normalization, Value* signal, const Size& count) {
  if (normalization == Normalization::kNone) return signal;
  const bool by_root = normalization == Normalization::kByRoot;
  if (const auto number = count.number()) {
    const auto divisor = static_cast<double>(*number);
    return ctx.op("Div", {signal, ctx.number_like(by_root ? std::sqrt(divisor) : divisor, signal)});
  }
  Value* divisor = ctx.cast(as_dim(ctx, count), DType::kFloat64);
  return ctx.op("Div", {signal, by_root ? ctx.op("Sqrt", {divisor}) : divisor});
}

bool is_inverse(const Transform& transform) { return transform.direction == Transform::Direction::kInverse; }

/// X[n - k] = conj(X[k])
Value* mirrored(LoweringContext& ctx, Value* half, std::int64_t axis, const Size& count) {
  const Size behind = halved(ctx, subtract(ctx, count, 1));
  Value* second = conjugated(ctx, ctx.slice(half, axis, behind, 0, -1));
  return ctx.concat({half, second}, axis);
}

}  // namespace

Value* signal_of(LoweringContext& ctx, std::size_t i) {
  std::vector<Value*> parts = ctx.is_value(i) ? std::vector<Value*>{ctx.input(i)} : ctx.inputs(i);
  for (Value*& part : parts)
    part = ctx.unsqueeze(ctx.cast(part, DType::kFloat64), {static_cast<std::int64_t>(ctx.rank(part))});
  return parts.size() == 1 ? parts.front() : ctx.concat(parts, static_cast<std::int64_t>(ctx.rank(parts[0])) - 1);
}

Value* real_part(LoweringContext& ctx, Value* signal) { return column(ctx, signal, 0); }
Value* imaginary_part(LoweringContext& ctx, Value* signal) { return column(ctx, signal, 1); }

void give_parts(LoweringContext& ctx, Value* signal) {
  ctx.results({real_part(ctx, signal), imaginary_part(ctx, signal)});
}

Value* with_samples(LoweringContext& ctx, Value* signal, std::int64_t axis, const Size& samples) {
  const Size present = size_of(ctx, signal, axis);
  const bool is_same = present.value() == samples.value() && present.number() == samples.number();
  if (is_same) return signal;
  const bool only_grows = present.number() && samples.number() && *present.number() < *samples.number();
  if (!only_grows) signal = ctx.slice(signal, axis, 0, samples);
  const Size missing = maximum(ctx, subtract(ctx, samples, present), 0);
  if (missing.number() == 0) return signal;
  std::vector<Size> sizes = ctx.sizes_of(signal);
  sizes[static_cast<std::size_t>(axis)] = missing;
  return ctx.concat({signal, ctx.filled(sizes, ctx.number_like(0, signal))}, axis);
}

Value* to_complex(LoweringContext& ctx, const Transform& transform, Value* signal,
                  const std::vector<std::int64_t>& axes) {
  const Size count = count_of(ctx, signal, axes);
  Value* spectrum = forward(ctx, is_inverse(transform) ? conjugated(ctx, signal) : signal, axes);
  if (axes.size() == 1 && is_real(ctx, signal)) {
    spectrum = real_where_exact(ctx, spectrum, axes.front(), size_of(ctx, signal, axes.front()));
  }
  if (is_inverse(transform)) spectrum = conjugated(ctx, spectrum);
  return normalized(ctx, transform.normalization, spectrum, count);
}

Value* half_to_complex(LoweringContext& ctx, const Transform& transform, Value* signal,
                       const std::vector<std::int64_t>& axes) {
  const Size count = count_of(ctx, signal, axes);
  const std::int64_t last = axes.back();
  const Size samples = size_of(ctx, signal, last);
  const Size kept = add(ctx, halved(ctx, samples), 1);
  Value* spectrum = real_where_exact(ctx, ctx.slice(forward(ctx, signal, last), last, 0, kept), last, samples);
  spectrum = forward(ctx, spectrum, std::vector<std::int64_t>(axes.begin(), axes.end() - 1));
  if (is_inverse(transform)) spectrum = conjugated(ctx, spectrum);
  return normalized(ctx, transform.normalization, spectrum, count);
}

Value* to_real(LoweringContext& ctx, const Transform& transform, Value* half, const std::vector<std::int64_t>& axes,
               const Size& count) {
  const std::int64_t last = axes.back();
  const std::vector<std::int64_t> others(axes.begin(), axes.end() - 1);
  half = with_samples(ctx, half, last, add(ctx, halved(ctx, count), 1));
  if (is_inverse(transform)) half = conjugated(ctx, half);
  half = forward(ctx, half, others);
  Value* signal = forward(ctx, mirrored(ctx, half, last, count), last);
  return normalized(ctx, transform.normalization, signal, multiply(ctx, count_of(ctx, half, others), count));
}

}  // namespace exportguard::lowering
