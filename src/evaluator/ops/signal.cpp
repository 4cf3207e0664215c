// DFT, STFT, MelWeightMatrix.
#include <ATen/ops/complex.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/fft_fft.h>
#include <ATen/ops/fft_ifft.h>
#include <ATen/ops/fft_irfft.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>

#include "evaluator/call.h"
#include "evaluator/conversion.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;

// The last axis holds real numbers, or their real and imaginary parts.
Tensor as_complex(const Call& call, const Tensor& x) {
  const std::int64_t parts = x.dim() > 0 ? x.size(-1) : 0;
  call.require(parts == 1 || parts == 2, "its last axis must have size 1 or 2");
  if (parts == 2) return at::view_as_complex(x.contiguous());
  const Tensor real = x.select(-1, 0);
  return at::complex(real.contiguous(), at::zeros_like(real).contiguous());
}

// The axis is an attribute before opset 20, an input from then on.
std::int64_t axis_of(const Call& call, std::int64_t rank) {
  if (call.opset() < 20) return call.axis(call.integer("axis", 1), rank);
  return call.axis(call.has(2) ? call.integer(2) : -2, rank);
}

void run_dft(Call& call) {
  const Tensor x = raised(call.input(0));
  const std::int64_t axis = axis_of(call, x.dim());
  call.require(axis < x.dim() - 1, "the last axis holds the parts of a number");
  const bool is_inverse = call.flag("inverse");
  const bool is_onesided = call.flag("onesided");
  const Tensor z = as_complex(call, x);
  const std::int64_t usual = is_inverse && is_onesided ? 2 * (z.size(axis) - 1) : z.size(axis);
  const std::int64_t length = call.has(1) ? call.integer(1) : usual;
  call.require(length > 0, "the length must be positive");
  const c10::ScalarType type = call.input(0).scalar_type();
  if (is_inverse && is_onesided) return call.result(at::fft_irfft(z, length, axis).unsqueeze(-1).to(type));
  const Tensor turned = is_inverse ? at::fft_ifft(z, length, axis) : at::fft_fft(z, length, axis);
  const Tensor kept = is_onesided ? turned.narrow(axis, 0, length / 2 + 1) : turned;
  call.result(at::view_as_real(kept.resolve_conj()).contiguous().to(type));
}

// Frames of [batch, length, parts], each times the window and transformed.
void run_stft(Call& call) {
  const Tensor x = raised(call.input(0));
  const Tensor z = as_complex(call, x.dim() == 2 ? x.unsqueeze(-1) : x);
  const std::int64_t step = call.integer(1);
  call.require(call.has(2) || call.has(3), "it needs a window or a frame_length");
  const std::int64_t length = call.has(3) ? call.integer(3) : call.input(2).size(0);
  call.require(step > 0 && length > 0 && length <= z.size(1), "the frames do not fit the signal");
  Tensor frames = z.unfold(1, length, step);
  if (call.has(2)) frames = frames.mul(raised(call.input(2)));
  const Tensor turned = at::fft_fft(frames, length, -1);
  const bool is_onesided = call.flag("onesided", true) && (x.dim() == 2 || x.size(-1) == 1);
  const Tensor kept = is_onesided ? turned.narrow(-1, 0, length / 2 + 1) : turned;
  call.result(at::view_as_real(kept.resolve_conj()).contiguous().to(call.input(0).scalar_type()));
}

double mel(double hertz) { return 2595.0 * std::log10(1.0 + hertz / 700.0); }

// Triangles on the mel scale, in whole bins of the spectrum.
void run_mel_weight_matrix(Call& call) {
  const std::int64_t bands = call.integer(0);
  const std::int64_t length = call.integer(1);
  const std::int64_t rate = call.integer(2);
  call.require(bands > 0 && length > 0 && rate > 0 && bands < (1 << 20), "its sizes must be positive");
  const double low = mel(call.number(3));
  const double high = mel(call.number(4));
  const std::int64_t bins = length / 2 + 1;
  call.require_room({bins, bands});

  const double step = (high - low) / static_cast<double>(bands + 2);
  std::vector<std::int64_t> edges;
  for (std::int64_t i = 0; i < bands + 2; ++i) {
    const double hertz = 700.0 * (std::pow(10.0, (low + step * static_cast<double>(i)) / 2595.0) - 1.0);
    edges.push_back(
        static_cast<std::int64_t>(std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate))));
  }

  const Tensor result = at::empty({bins, bands}, at::kFloat).zero_();
  auto* to = result.mutable_data_ptr<float>();
  for (std::int64_t band = 0; band < bands; ++band) {
    const auto at = static_cast<std::size_t>(band);
    const std::int64_t first = edges[at];
    const std::int64_t peak = edges[at + 1];
    const std::int64_t last = edges[at + 2];
    const auto set = [&](std::int64_t bin, double value) {
      if (bin >= 0 && bin < bins) to[bin * bands + band] = static_cast<float>(value);
    };
    if (peak == first) set(peak, 1);
    for (std::int64_t bin = first; bin <= peak && peak != first; ++bin) {
      set(bin, static_cast<double>(bin - first) / static_cast<double>(peak - first));
    }
    for (std::int64_t bin = peak; bin < last; ++bin) {
      set(bin, static_cast<double>(last - bin) / static_cast<double>(last - peak));
    }
  }

  const std::int64_t number = call.integer("output_datatype", static_cast<std::int64_t>(DType::kFloat32));
  call.require(number > 0 && number <= static_cast<std::int64_t>(DType::kInt2), "there is no such dtype");
  const auto to_type = static_cast<DType>(number);
  call.result(converted(Datum::of(result.to(call.device()), DType::kFloat32), to_type));
}

}  // namespace

void populate_signal(OperatorTable& table) {
  table.add("DFT", run_dft);
  table.add("STFT", run_stft);
  table.add("MelWeightMatrix", run_mel_weight_matrix);
}

}  // namespace exportguard::evaluator
