#include <cmath>
#include <string>

#include "lowering/complex_parts.h"

namespace exportguard::lowering {
namespace {

using ir::Argument;

enum class Direction { kForward, kInverse };

std::int64_t rank_of(const ComplexSite& site) {
  const auto rank = site.node().output().type().rank();
  if (!rank) site.fail("the rank must be known");
  return static_cast<std::int64_t>(*rank);
}

std::int64_t axis_at(const ComplexSite& site, std::int64_t axis) { return axis < 0 ? axis + rank_of(site) : axis; }

ir::Shape swapped(ir::Shape shape, std::int64_t a) {
  std::swap(shape.at(static_cast<std::size_t>(a)), shape.back());
  return shape;
}

Value* to_last(ComplexSite& site, Value* x, std::int64_t axis) {
  const ir::Type type = ir::Type::tensor(x->dtype(), swapped(*x->type().shape, axis));
  return site.emit("transpose.int", {x, literal(axis), literal(std::int64_t{-1})}, type);
}

std::vector<ir::NamedAttribute> attribute(std::string name, std::int64_t value) {
  std::vector<ir::NamedAttribute> attributes;
  attributes.emplace_back(std::move(name), value);
  return attributes;
}

Value* as_columns(ComplexSite& site, const Parts& parts) {
  ir::Type type = parts.real->type();
  type.shape->push_back(1);
  Value* real = site.emit("unsqueeze.default", {parts.real, literal(std::int64_t{-1})}, type);
  if (parts.imaginary == nullptr) return real;
  Value* imaginary = site.emit("unsqueeze.default", {parts.imaginary, literal(std::int64_t{-1})}, type);
  type.shape->back() = 2;
  return site.onnx("Concat", {real, imaginary}, attribute("axis", -1), type);
}

Value* converted(ComplexSite& site, Value* x, DType dtype) {
  ir::Type type = x->type();
  type.dtype = dtype;
  return x->dtype() == dtype
             ? x
             : site.onnx("Cast", {x}, attribute("to", static_cast<std::int64_t>(dtype)), std::move(type));
}

/// Along the last axis. ONNX divides the inverse by the number of samples; torch's plans do so when told. In float64:
/// sums in float32 lose digits with the number of samples.
Parts dft(ComplexSite& site, const Parts& parts, Direction direction) {
  Value* signal = converted(site, as_columns(site, parts), DType::kFloat64);
  const auto axis = static_cast<std::int64_t>(signal->type().shape->size()) - 2;
  ir::Type type = signal->type();
  type.shape->back() = 2;
  std::vector<ir::NamedAttribute> attributes = attribute("inverse", direction == Direction::kInverse ? 1 : 0);
  std::vector<Value*> inputs = {signal};
  if (site.opset() < 20) {
    attributes.emplace_back("axis", axis);
  } else {
    std::vector<ir::NamedAttribute> constant;
    constant.emplace_back("value", ir::Tensor::scalar(axis, DType::kInt64));
    inputs.push_back(nullptr);
    inputs.push_back(site.onnx("Constant", {}, std::move(constant), ir::Type::tensor(DType::kInt64, ir::Shape{})));
  }
  Value* exact = site.onnx("DFT", std::move(inputs), std::move(attributes), type);
  Value* spectrum = converted(site, exact, parts.real->dtype());
  type = spectrum->type();
  type.shape->pop_back();
  const auto column = [&](std::int64_t index) {
    return site.emit("select.int", {spectrum, literal(std::int64_t{-1}), literal(index)}, type);
  };
  return {column(0), column(1)};
}

Parts along(ComplexSite& site, const Parts& parts, std::int64_t axis, Direction direction) {
  const Parts moved = {to_last(site, parts.real, axis),
                       parts.imaginary ? to_last(site, parts.imaginary, axis) : nullptr};
  const Parts spectrum = dft(site, moved, direction);
  return {to_last(site, spectrum.real, axis), to_last(site, spectrum.imaginary, axis)};
}

/// The factor by torch's normalization (none, by the root of the count, by the
/// count) over what ONNX has done already.
double factor_of(const ComplexSite& site, std::int64_t normalization, double count, Direction direction) {
  const double done = direction == Direction::kInverse ? 1 / count : 1;
  if (normalization == 0) return 1 / done;
  if (normalization > 2) site.fail("the normalization must be 0, 1 or 2, got " + std::to_string(normalization));
  return (normalization == 1 ? 1 / std::sqrt(count) : 1 / count) / done;
}

bool needs_count(std::int64_t normalization, Direction direction) {
  return direction == Direction::kInverse ? normalization != 2 : normalization != 0;
}

double samples(const ComplexSite& site, const ir::Shape& shape, const std::vector<std::int64_t>& axes) {
  double count = 1;
  for (const std::int64_t axis : axes) {
    const auto size = shape.at(static_cast<std::size_t>(axis_at(site, axis))).constant();
    if (!size)
      site.fail(
          "this normalization needs the number of samples to be known at "
          "conversion");
    count *= static_cast<double>(*size);
  }
  return count;
}

Value* scaled(ComplexSite& site, Value* x, double factor) {
  return factor == 1 ? x : site.emit("mul.Tensor", {x, literal(factor)}, x->type());
}

/// `normalization` as torch numbers it: 0 for none, 1 for the square root of the number of samples, 2 for the number.
/// aten's operators say how to scale, torch's primitive ones do not scale.
std::int64_t normalization_of(const ComplexSite& site) {
  constexpr std::int64_t kUnscaled = 0;
  return site.node().op().starts_with('_') ? site.integer(2) : kUnscaled;
}

Parts normalized(ComplexSite& site, const Parts& parts, const ir::Shape& shape, Direction direction) {
  const std::int64_t normalization = normalization_of(site);
  if (!needs_count(normalization, direction)) return parts;
  const double factor = factor_of(site, normalization, samples(site, shape, site.integers(1)), direction);
  return {scaled(site, parts.real, factor), scaled(site, parts.imaginary, factor)};
}

const ir::Shape& shape_of(const ComplexSite& site, const Value& value) {
  if (!value.type().shape) site.fail("the rank of the signal must be known");
  return *value.type().shape;
}

Value* sliced(ComplexSite& site, Value* x, std::int64_t axis, std::int64_t start, std::int64_t end,
              const ir::Dim& size) {
  ir::Type type = x->type();
  type.shape->at(static_cast<std::size_t>(axis)) = size;
  return site.emit("slice.Tensor", {x, literal(axis), literal(start), literal(end)}, type);
}

/// The second half of the spectrum of a real signal mirrors the first: X[n - k]
/// = conj(X[k]).
Parts full_spectrum(ComplexSite& site, const Parts& half, std::int64_t axis, std::int64_t count) {
  const std::int64_t mirrored = count - (count / 2 + 1);
  const auto first = [&](Value* part) { return sliced(site, part, axis, 0, count / 2 + 1, count / 2 + 1); };
  const auto second = [&](Value* part) {
    Value* inner = sliced(site, part, axis, 1, mirrored + 1, mirrored);
    return site.emit("flip.default", {inner, Argument{Argument::List{literal(axis)}}}, inner->type());
  };
  const auto joined = [&](Value* a, Value* b) {
    ir::Type type = a->type();
    type.shape->at(static_cast<std::size_t>(axis)) = count;
    return site.onnx("Concat", {a, b}, attribute("axis", axis), type);
  };
  Value* negative = second(half.imaginary);
  negative = site.emit("neg.default", {negative}, negative->type());
  return {joined(first(half.real), second(half.real)), joined(first(half.imaginary), negative)};
}

Parts along_every_axis(ComplexSite& site, Parts parts, Direction direction) {
  for (const std::int64_t axis : site.integers(1)) parts = along(site, parts, axis_at(site, axis), direction);
  return parts;
}

/// Whether it is forward, gives one half alone, or how many samples it gives.
std::int64_t last_argument(ComplexSite& site) { return site.integer(site.node().arguments().size() - 1); }

}  // namespace

void separate_fft_c2c(ComplexSite& site) {
  const Direction direction = last_argument(site) != 0 ? Direction::kForward : Direction::kInverse;
  const Parts parts = site.parts(0);
  const ir::Shape shape = shape_of(site, *parts.real);
  site.give(normalized(site, along_every_axis(site, parts, direction), shape, direction));
}

/// The last of the axes is the one of real samples; one half of it is enough.
void separate_fft_r2c(ComplexSite& site) {
  std::vector<std::int64_t> axes = site.integers(1);
  const ir::Shape shape = shape_of(site, site.value(0));
  const std::int64_t last = axis_at(site, axes.back());
  Parts parts = along(site, {&site.value(0), nullptr}, last, Direction::kForward);
  if (last_argument(site) != 0) {
    const auto count = shape.at(static_cast<std::size_t>(last)).constant();
    if (!count) site.fail("the number of samples must be known at conversion");
    const std::int64_t kept = *count / 2 + 1;
    parts = {sliced(site, parts.real, last, 0, kept, kept), sliced(site, parts.imaginary, last, 0, kept, kept)};
  }
  axes.pop_back();
  for (const std::int64_t axis : axes) parts = along(site, parts, axis_at(site, axis), Direction::kForward);
  site.give(normalized(site, parts, shape, Direction::kForward));
}

void separate_fft_c2r(ComplexSite& site) {
  const std::int64_t count = last_argument(site);
  std::vector<std::int64_t> axes = site.integers(1);
  const std::int64_t last = axis_at(site, axes.back());
  axes.pop_back();
  Parts parts = site.parts(0);
  for (const std::int64_t axis : axes) parts = along(site, parts, axis_at(site, axis), Direction::kInverse);
  parts = along(site, full_spectrum(site, parts, last, count), last, Direction::kInverse);
  const ir::Shape shape = shape_of(site, site.node().output());
  site.give_real(normalized(site, parts, shape, Direction::kInverse).real);
}

namespace {

/// The window in the middle of a frame, zeros around it; null where there is none.
Value* framed_window(ComplexSite& site, std::int64_t length, const ir::Type& type) {
  if (!site.has(4)) {
    const std::int64_t width = site.has(3) ? site.integer(3) : length;
    if (width != length) site.fail("a window shorter than a frame must be given as a tensor");
    return nullptr;
  }
  Value& window = site.value(4);
  const auto width = shape_of(site, window).at(0).constant();
  if (!width) site.fail("the length of the window must be known");
  const std::int64_t before = (length - *width) / 2;
  const std::int64_t after = length - *width - before;
  const Argument padding{Argument::List{literal(before), literal(after)}};
  const ir::Type padded = ir::Type::tensor(type.dtype, ir::Shape{length});
  return *width == length ? &window : site.emit("constant_pad_nd.default", {&window, padding, literal(0.0)}, padded);
}

bool flag_at(const ComplexSite& site, std::size_t argument, bool fallback) {
  const bool* flag = site.has(argument) ? site.argument(argument).get_if<bool>() : nullptr;
  return flag == nullptr ? fallback : *flag;
}

}  // namespace

/// stft(self, n_fft, hop_length, win_length, window, normalized, onesided, return_complex, align_to_window): frames of
/// the signal, each a column of the spectrum. torch.stft has padded the signal.
void separate_stft(ComplexSite& site) {
  const std::int64_t length = site.integer(1);
  const std::int64_t hop = site.has(2) ? site.integer(2) : length / 4;
  if (flag_at(site, 8, false)) site.fail("align_to_window has no rule");
  Value& signal = site.value(0);
  const bool is_onesided = flag_at(site, 6, true);
  ir::Type type = signal.type();
  type.shape->back() = shape_of(site, site.node().output()).back();
  type.shape->push_back(length);
  Value* frames =
      site.emit("unfold.default", {&signal, literal(std::int64_t{-1}), literal(length), literal(hop)}, type);
  if (Value* window = framed_window(site, length, type)) frames = site.emit("mul.Tensor", {frames, window}, type);
  Parts parts = dft(site, {frames, nullptr}, Direction::kForward);
  const auto rank = static_cast<std::int64_t>(type.shape->size());
  const auto column = [&](Value* part) {
    const std::int64_t kept = length / 2 + 1;
    if (is_onesided) part = sliced(site, part, rank - 1, 0, kept, kept);
    if (flag_at(site, 5, false)) part = scaled(site, part, 1 / std::sqrt(static_cast<double>(length)));
    return to_last(site, part, rank - 2);
  };
  site.give({column(parts.real), column(parts.imaginary)});
}

}  // namespace exportguard::lowering
