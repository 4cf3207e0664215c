#include <cmath>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/complex_rules.h"
#include "lowering/fourier.h"
#include "lowering/size_arithmetic.h"

/// Spectra of the frames of a signal, and the signal of such spectra, of any length. A frame has `n_fft` samples; the
/// next one begins `hop` further on.
namespace exportguard::lowering {
namespace {

struct Frames {
  std::int64_t length;
  std::int64_t hop;
};

Frames frames_of(LoweringContext& ctx) {
  const std::int64_t length = ctx.integer(1);
  return {length, ctx.has(2) ? ctx.integer(2) : length / 4};
}

bool flag_at(LoweringContext& ctx, std::size_t argument, bool fallback) {
  return ctx.has(argument) ? ctx.flag(argument) : fallback;
}

/// The window in the middle of a frame, zeros around it; null where it is one everywhere.
Value* framed_window(LoweringContext& ctx, std::int64_t length) {
  const std::int64_t given = ctx.has(3) ? ctx.integer(3) : length;
  if (!ctx.has(4) && given == length) return nullptr;
  Value* window = ctx.has(4) ? ctx.input(4) : ctx.filled({given}, ctx.constant(1.0, DType::kFloat64));
  const auto width = ctx.size(window, 0).constant();
  ctx.require(width.has_value(), "the length of the window must be known at conversion");
  const std::int64_t before = (length - *width) / 2;
  const auto zeros = [&](std::int64_t count) { return ctx.filled({count}, ctx.number_like(0, window)); };
  std::vector<Value*> pieces = {window};
  if (before > 0) pieces.insert(pieces.begin(), zeros(before));
  if (length - *width - before > 0) pieces.push_back(zeros(length - *width - before));
  return ctx.cast(pieces.size() == 1 ? window : ctx.concat(pieces, 0), DType::kFloat64);
}

// ------------------------------------------------------------------------------------------------ there

/// [..., samples, parts] → [..., frames, length, parts]
Value* framed(LoweringContext& ctx, Value* signal, const Frames& frames) {
  const auto axis = static_cast<std::int64_t>(ctx.rank(signal)) - 2;
  const Size behind_first = subtract(ctx, size_of(ctx, signal, axis), frames.length);
  Value* last = ctx.op("Div", {as_dim(ctx, behind_first), ctx.ints({frames.hop})});
  Value* starts = ctx.op("Mul", {range(ctx, add(ctx, Size(last), 1)), ctx.ints({frames.hop})});
  Value* positions = ctx.op("Add", {ctx.unsqueeze(starts, {1}), range(ctx, frames.length)});
  return ctx.gather(signal, positions, axis);
}

/// stft(self, n_fft, hop_length, win_length, window, normalized, onesided, return_complex, align_to_window): torch.stft
/// has padded the signal.
Value* spectra(LoweringContext& ctx) {
  ctx.require(!flag_at(ctx, 8, false), "align_to_window has no lowering");
  const Frames frames = frames_of(ctx);
  Value* signal = framed(ctx, signal_of(ctx, 0), frames);
  if (Value* window = framed_window(ctx, frames.length)) signal = ctx.op("Mul", {signal, ctx.unsqueeze(window, {1})});
  const auto axis = static_cast<std::int64_t>(ctx.rank(signal)) - 2;
  const bool is_normalized = flag_at(ctx, 5, false);
  const Transform transform = {.normalization = is_normalized ? Normalization::kByRoot : Normalization::kNone};
  const bool is_half = flag_at(ctx, 6, ctx.size(signal, -1).constant() == 1);  // of real numbers
  Value* spectrum =
      is_half ? half_to_complex(ctx, transform, signal, {axis}) : to_complex(ctx, transform, signal, {axis});
  return ctx.swap_axes(spectrum, axis - 1, axis);
}

void lower_stft(LoweringContext& ctx) { give_parts(ctx, spectra(ctx)); }
void lower_stft_of_pairs(LoweringContext& ctx) { ctx.result(spectra(ctx)); }

// ------------------------------------------------------------------------------------------------ and back

/// [..., frames, length] → [..., samples], each sample the sum of the frames that it is in: frames are cut at multiples
/// of the hop, and the pieces k of all frames stand k hops behind the first pieces.
Value* overlapped(LoweringContext& ctx, Value* samples, const Frames& frames, const Size& count) {
  const std::int64_t pieces = (frames.length + frames.hop - 1) / frames.hop;
  const std::size_t rank = ctx.rank(samples);
  const auto axis = static_cast<std::int64_t>(rank) - 2;
  std::vector<Size> sizes = ctx.sizes_of(samples);
  const auto zeros = [&](std::size_t along, const Size& size) {
    std::vector<Size> shape = ctx.sizes_of(samples);
    shape.back() = along + 1 == rank ? size : Size(frames.hop);
    if (along + 1 != rank) shape[along] = size;
    return ctx.filled(shape, ctx.number_like(0, samples));
  };

  Value* whole = samples;
  const std::int64_t missing = pieces * frames.hop - frames.length;
  if (missing > 0) whole = ctx.concat({samples, zeros(rank - 1, missing)}, axis + 1);

  Value* sum = nullptr;
  for (std::int64_t k = 0; k < pieces; ++k) {
    std::vector<Value*> column = {ctx.slice(whole, axis + 1, k * frames.hop, (k + 1) * frames.hop)};
    if (k > 0) column.insert(column.begin(), zeros(rank - 2, k));
    if (k + 1 < pieces) column.push_back(zeros(rank - 2, pieces - 1 - k));
    Value* shifted = column.size() == 1 ? column.front() : ctx.concat(column, axis);
    sum = sum == nullptr ? shifted : ctx.op("Add", {sum, shifted});
  }

  sizes.erase(sizes.end() - 2, sizes.end());
  sizes.push_back(multiply(ctx, add(ctx, size_of(ctx, samples, axis), pieces - 1), frames.hop));
  return ctx.slice(ctx.reshape(sum, sizes), axis, 0, count);
}

/// What istft(self, n_fft, hop_length, win_length, window, center, normalized, onesided, length, return_complex) says.
struct Inverse {
  Frames frames;
  bool is_centered;
  bool is_half;
  bool gives_complex;
  std::optional<Size> length;
};

Inverse inverse_of(LoweringContext& ctx, Value* spectrum) {
  constexpr std::size_t kLength = 8;
  Inverse inverse = {frames_of(ctx), flag_at(ctx, 5, true), false, flag_at(ctx, 9, false), std::nullopt};
  const auto bins = ctx.size(spectrum, -3).constant();
  ctx.require(bins.has_value(), "the number of frequencies must be known at conversion");
  inverse.is_half = flag_at(ctx, 7, *bins != inverse.frames.length);
  if (!ctx.has(kLength)) return inverse;
  const auto number = ctx.find_integer(kLength);
  inverse.length = number ? Size(*number) : Size(ctx.dim(kLength));
  return inverse;
}

/// The samples of every frame: a signal, or its real part.
Value* frames_of_spectra(LoweringContext& ctx, const Inverse& inverse, Value* spectrum) {
  const auto axis = static_cast<std::int64_t>(ctx.rank(spectrum)) - 2;
  const bool is_normalized = flag_at(ctx, 6, false);
  const Transform transform = {Transform::Direction::kInverse,
                               is_normalized ? Normalization::kByRoot : Normalization::kByCount};
  spectrum = ctx.swap_axes(spectrum, axis - 1, axis);
  if (inverse.gives_complex) return to_complex(ctx, transform, spectrum, {axis});
  return real_part(ctx, to_real(ctx, transform, spectrum, {axis}, inverse.frames.length));
}

/// The sum of the frames over that of the squares of their windows.
Value* unframed(LoweringContext& ctx, const Inverse& inverse, Value* samples) {
  const Frames& frames = inverse.frames;
  const auto axis = static_cast<std::int64_t>(ctx.rank(samples)) - 2;
  const Size steps = size_of(ctx, samples, axis);
  const Size count = add(ctx, multiply(ctx, subtract(ctx, steps, 1), frames.hop), frames.length);
  Value* window = framed_window(ctx, frames.length);
  if (window == nullptr) window = ctx.filled({frames.length}, ctx.constant(1.0, DType::kFloat64));
  Value* sum = overlapped(ctx, ctx.op("Mul", {samples, window}), frames, count);
  Value* squares = ctx.expand(ctx.op("Mul", {window, window}), {steps, frames.length});
  Value* whole = ctx.op("Div", {sum, overlapped(ctx, squares, frames, count)});
  const std::int64_t start = inverse.is_centered ? frames.length / 2 : 0;
  const Size end = inverse.length ? add(ctx, *inverse.length, start) : subtract(ctx, count, start);
  Value* kept = ctx.slice(whole, axis, start, end);
  if (!inverse.length) return kept;
  std::vector<Size> sizes = ctx.sizes_of(kept);
  sizes.back() = maximum(ctx, subtract(ctx, end, count), 0);
  return ctx.concat({kept, ctx.filled(sizes, ctx.number_like(0, kept))}, axis);
}

void lower_istft(LoweringContext& ctx) {
  Value* spectrum = signal_of(ctx, 0);
  const Inverse inverse = inverse_of(ctx, spectrum);
  Value* samples = frames_of_spectra(ctx, inverse, spectrum);
  if (!inverse.gives_complex) return ctx.result(unframed(ctx, inverse, samples));
  ctx.results({unframed(ctx, inverse, real_part(ctx, samples)), unframed(ctx, inverse, imaginary_part(ctx, samples))});
}

}  // namespace

void populate_short_time(LoweringTable& table) {
  table.add("aten.stft.default", lower_stft_of_pairs);
  table.add("complex.stft.default", lower_stft);
  table.add({"complex.istft.default", "complex.inverse_stft.default"}, lower_istft);
  table.add_complex({"aten.stft.default", "aten.istft.default", "exportguard.inverse_stft.default"}, separate_in_row);
}

}  // namespace exportguard::lowering
