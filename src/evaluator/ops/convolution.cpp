// Conv, ConvTranspose, DeformConv, Col2Im. float16 and bfloat16 are computed in float32 and rounded once.
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"
#include "evaluator/windows.h"
#include "exportguard/common/sizes.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;
using Sizes = std::vector<std::int64_t>;

Sizes kernel_of(const Call& call, const Tensor& weight) {
  const Sizes kernel(weight.sizes().begin() + std::min<std::int64_t>(2, weight.dim()), weight.sizes().end());
  const Sizes declared = call.integers("kernel_shape", kernel);
  call.require(declared == kernel, "kernel_shape is not that of the weight");
  return kernel;
}

std::optional<Tensor> bias_of(const Call& call) {
  return call.has(2) ? std::optional(raised(call.input(2))) : std::nullopt;
}

void run_conv(Call& call) {
  const Tensor& x = call.input(0);
  const Tensor& weight = call.input(1);
  Windows windows = windows_of(call, x.sizes(), kernel_of(call, weight));
  Tensor input = raised(x);
  Sizes padding = windows.before;
  if (windows.before != windows.after) {
    input = padded(call, input, windows, 0);
    padding.assign(windows.rank(), 0);
  }
  const Sizes none(windows.rank(), 0);
  const Tensor result = at::convolution(input, raised(weight), bias_of(call), windows.strides, padding,
                                        windows.dilations, false, none, call.integer("group", 1));
  call.result(result.to(x.scalar_type()));
}

// ---------------------------------------------------------------- ConvTranspose

// output_shape says how much is cut off: the larger half behind, or in front for SAME_UPPER.
void cut_to(const Call& call, const Tensor& x, const Sizes& extra, Windows& windows, const Sizes& wanted) {
  const bool is_upper = call.text("auto_pad", "NOTSET") == "SAME_UPPER";
  const std::size_t skipped = wanted.size() - windows.rank();
  for (std::size_t i = 0; i < windows.rank(); ++i) {
    const std::int64_t size = x.size(static_cast<std::int64_t>(i) + 2);
    const std::int64_t whole = (size - 1) * windows.strides[i] + windows.extent(i) + extra[i];
    const std::int64_t total = whole - wanted[i + skipped];
    const std::int64_t cut = std::max<std::int64_t>(total, 0);  // what is missing is added behind
    windows.before[i] = is_upper ? cut / 2 : cut - cut / 2;
    windows.after[i] = total - windows.before[i];
  }
}

void run_conv_transpose(Call& call) {
  const Tensor& x = call.input(0);
  const Tensor& weight = call.input(1);
  Windows windows = windows_of(call, x.sizes(), kernel_of(call, weight));
  const Sizes none(windows.rank(), 0);
  const Sizes extra = call.integers("output_padding", none);
  call.require(extra.size() == windows.rank(), "output_padding must have an entry for each axis");

  const auto shape = call.find_integers("output_shape");
  if (shape) {
    call.require(shape->size() >= windows.rank(), "output_shape must have an entry for each axis");
    cut_to(call, x, extra, windows, *shape);
  } else if (call.text("auto_pad", "NOTSET").starts_with("SAME")) {
    Sizes wanted;
    for (std::size_t i = 0; i < windows.rank(); ++i)
      wanted.push_back(x.size(static_cast<std::int64_t>(i) + 2) * windows.strides[i]);
    cut_to(call, x, extra, windows, wanted);
  }

  const Tensor whole = at::convolution(raised(x), raised(weight), std::nullopt, windows.strides, none,
                                       windows.dilations, true, none, call.integer("group", 1));
  for (std::size_t i = 0; i < windows.rank(); ++i) {
    windows.before[i] = -windows.before[i];
    windows.after[i] = extra[i] - windows.after[i];
  }

  Tensor result = padded(call, whole, windows, 0);
  if (const auto bias = bias_of(call)) {
    Sizes view(static_cast<std::size_t>(x.dim()), 1);
    view[1] = bias->numel();
    result = result.add(bias->reshape(view));
  }
  call.result(result.to(x.scalar_type()));
}

// ---------------------------------------------------------------- Col2Im

// Adds each element of the kernel where it lies in the image: one strided view for each.
void run_col2im(Call& call) {
  const Tensor x = raised(call.input(0));
  const Sizes image = call.ints(1);
  call.require(x.dim() == 3 && !image.empty(), "its input must have rank 3");
  Sizes fake{x.size(0), 1};
  fake.insert(fake.end(), image.begin(), image.end());
  const Windows windows = windows_of(call, fake, call.ints(2));
  const std::int64_t elements = element_count(windows.kernel).value_or(0);
  call.require(elements > 0 && x.size(1) % elements == 0, "its channels are no multiple of the kernel's elements");

  Sizes sizes{x.size(0), x.size(1) / elements};
  Sizes counts;
  std::int64_t blocks = 1;
  for (std::size_t i = 0; i < windows.rank(); ++i) {
    sizes.push_back(image[i] + windows.before[i] + windows.after[i]);
    counts.push_back((sizes.back() - windows.extent(i)) / windows.strides[i] + 1);
    call.require(sizes.back() >= windows.extent(i), "the kernel is larger than the image");
    blocks *= counts.back();
  }
  call.require(x.size(2) == blocks, "its blocks are not those of the image");
  call.require_room(sizes);
  Tensor result = at::zeros(sizes, x.options());
  Sizes columns{x.size(0), sizes[1], elements};
  columns.insert(columns.end(), counts.begin(), counts.end());
  const Tensor blocks_of = x.reshape(columns);
  for (std::int64_t element = 0; element < elements; ++element) {
    Tensor place = result;
    std::int64_t rest = element;
    for (std::size_t i = windows.rank(); i-- > 0;) {
      const std::int64_t start = rest % windows.kernel[i] * windows.dilations[i];
      rest /= windows.kernel[i];
      place = place.slice(static_cast<std::int64_t>(i) + 2, start, start + (counts[i] - 1) * windows.strides[i] + 1,
                          windows.strides[i]);
    }
    place.add_(blocks_of.select(2, element));
  }
  for (std::size_t i = 0; i < windows.rank(); ++i) {
    result = result.narrow(static_cast<std::int64_t>(i) + 2, windows.before[i], image[i]);
  }
  call.result(result.to(call.input(0).scalar_type()));
}

// ---------------------------------------------------------------- DeformConv (two spatial axes)

float bilinear(const float* plane, std::int64_t height, std::int64_t width, double y, double x) {
  if (y <= -1 || x <= -1 || y >= static_cast<double>(height) || x >= static_cast<double>(width)) return 0;
  const auto top = static_cast<std::int64_t>(std::floor(y));
  const auto left = static_cast<std::int64_t>(std::floor(x));
  const double down = y - static_cast<double>(top);
  const double right = x - static_cast<double>(left);
  const auto pixel = [&](std::int64_t row, std::int64_t column) {
    const bool is_inside = row >= 0 && row < height && column >= 0 && column < width;
    return is_inside ? static_cast<double>(plane[row * width + column]) : 0.0;
  };
  const double upper = pixel(top, left) * (1 - right) + pixel(top, left + 1) * right;
  const double lower = pixel(top + 1, left) * (1 - right) + pixel(top + 1, left + 1) * right;
  return static_cast<float>(upper * (1 - down) + lower * down);
}

// Columns [N, C, kernel elements, outputs] gathered at the shifted places; the product with the weight follows.
Tensor deformed_columns(const Call& call, const Tensor& x, const Windows& windows, at::IntArrayRef out) {
  const Tensor offsets = call.input(2).to(at::kCPU, at::kFloat).contiguous();
  const bool has_mask = call.has(4);
  const Tensor mask = has_mask ? call.input(4).to(at::kCPU, at::kFloat).contiguous() : Tensor();

  const std::int64_t groups = call.integer("offset_group", 1);
  const std::int64_t elements = windows.kernel[0] * windows.kernel[1];
  const std::int64_t places = out[0] * out[1];
  const std::int64_t channels = x.size(1);
  call.require(groups > 0 && channels % groups == 0, "offset_group does not divide the channels");
  const bool fits = offsets.numel() == x.size(0) * groups * elements * 2 * places &&
                    (!has_mask || mask.numel() == x.size(0) * groups * elements * places);
  call.require(fits, "offset or mask do not have the sizes of the output");

  const Tensor columns = at::empty({x.size(0), channels, elements, places}, at::kFloat);
  auto* to = columns.mutable_data_ptr<float>();
  const auto* shift = offsets.const_data_ptr<float>();
  const auto* weight = has_mask ? mask.const_data_ptr<float>() : nullptr;
  const auto* pixels = x.const_data_ptr<float>();
  for (std::int64_t n = 0; n < x.size(0); ++n) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t group = n * groups + c / (channels / groups);
      const float* plane = pixels + (n * channels + c) * x.size(2) * x.size(3);
      for (std::int64_t e = 0; e < elements; ++e) {
        for (std::int64_t p = 0; p < places; ++p) {
          const std::int64_t at = (group * elements + e) * 2 * places + p;
          const auto row = static_cast<double>(p / out[1] * windows.strides[0] - windows.before[0] +
                                               e / windows.kernel[1] * windows.dilations[0]);
          const auto column = static_cast<double>(p % out[1] * windows.strides[1] - windows.before[1] +
                                                  e % windows.kernel[1] * windows.dilations[1]);
          const float value = bilinear(plane, x.size(2), x.size(3), row + static_cast<double>(shift[at]),
                                       column + static_cast<double>(shift[at + places]));
          *to++ = weight != nullptr ? value * weight[(group * elements + e) * places + p] : value;
        }
      }
    }
  }

  return columns;
}

void run_deform_conv(Call& call) {
  const Tensor x = call.input(0).to(at::kCPU, at::kFloat).contiguous();
  const Tensor weight = call.input(1).to(at::kCPU, at::kFloat);
  call.require(x.dim() == 4 && weight.dim() == 4, "only two spatial axes can be run");
  const Windows windows = windows_of(call, x.sizes(), kernel_of(call, weight));

  Sizes out;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t size = x.size(static_cast<std::int64_t>(i) + 2) + windows.before[i] + windows.after[i];
    call.require(size >= windows.extent(i), "the kernel is larger than the input");
    out.push_back((size - windows.extent(i)) / windows.strides[i] + 1);
  }

  const std::int64_t groups = call.integer("group", 1);
  call.require(groups > 0 && weight.size(0) % groups == 0 && x.size(1) == weight.size(1) * groups,
               "group does not fit");

  const Tensor columns = deformed_columns(call, x, windows, out)
                             .reshape({x.size(0), groups, weight.size(1) * windows.kernel[0] * windows.kernel[1], -1});
  const Tensor rows = weight.reshape({1, groups, weight.size(0) / groups, -1});
  Tensor result = rows.matmul(columns).reshape({x.size(0), weight.size(0), out[0], out[1]});
  if (call.has(3)) result = result.add(call.input(3).to(at::kCPU, at::kFloat).reshape({1, -1, 1, 1}));
  call.result(result.to(call.device(), call.input(0).scalar_type()));
}

}  // namespace

void populate_convolution(OperatorTable& table) {
  table.add("Conv", run_conv);
  table.add("ConvTranspose", run_conv_transpose);
  table.add("Col2Im", run_col2im);
  table.add("DeformConv", run_deform_conv);
}

}  // namespace exportguard::evaluator
