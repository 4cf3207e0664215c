// Tensors from sizes: ConstantOfShape, Range, EyeLike, OneHot, windows.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <numbers>

#include "evaluator/call.h"
#include "evaluator/conversion.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;

DType dtype_attribute(const Call& call, std::string_view name, DType otherwise) {
  const std::int64_t number = call.integer(name, static_cast<std::int64_t>(otherwise));
  call.require(number > 0 && number <= static_cast<std::int64_t>(DType::kInt2), "there is no such dtype");
  return static_cast<DType>(number);
}

void run_constant_of_shape(Call& call) {
  const std::vector<std::int64_t> sizes = call.ints(0);
  call.require_room(sizes);
  const auto options = at::TensorOptions(at::kFloat).device(call.device());
  const ir::Attribute* value = call.node().find_attribute("value");
  if (value == nullptr) return call.result(at::zeros(sizes, options));
  const auto* given = std::get_if<ir::Tensor>(value);
  call.require(given != nullptr && given->numel() == 1, "value must be a tensor of one element");
  const Datum element = to_datum(*given, call.strings(), call.device());
  const Tensor filled =
      moved(element.tensor, [&](const Tensor& bits) { return bits.reshape({}).expand(sizes).contiguous(); });
  call.result(filled, element.dtype);
}

template <typename T>
Tensor range(const Call& call, T start, T limit, T step, c10::ScalarType type) {
  call.require(step != 0, "the step is 0");
  const double count = std::ceil((static_cast<double>(limit) - static_cast<double>(start)) / static_cast<double>(step));
  call.require(count < 1e15, "a result is too large");
  const auto length = static_cast<std::int64_t>(std::max(count, 0.0));
  call.require_room(length);
  const auto options = at::TensorOptions(type).device(call.device());
  return at::arange(length, options).mul(step).add(start).to(type);
}

void run_range(Call& call) {
  const c10::ScalarType type = call.input(0).scalar_type();
  if (at::isIntegralType(type, false)) {
    return call.result(range(call, call.integer(0), call.integer(1), call.integer(2), type));
  }
  const c10::ScalarType wide = is_reduced(type) ? at::kFloat : type;
  call.result(range(call, call.number(0), call.number(1), call.number(2), wide).to(type));
}

void run_eye_like(Call& call) {
  const Tensor& x = call.input(0);
  call.require(x.dim() == 2, "its input must have rank 2");
  const std::int64_t k = call.integer("k", 0);
  const auto options = at::TensorOptions(at::kLong).device(x.device());
  const Tensor rows = at::arange(x.size(0), options).unsqueeze(1);
  const Tensor is_one = at::arange(x.size(1), options).sub(rows).eq(k);
  const DType to = dtype_attribute(call, "dtype", call.dtype(0));
  call.result(converted(Datum::of(is_one, DType::kBool), to));
}

// A position outside [-depth, depth) makes a row without a one.
void run_one_hot(Call& call) {
  const Tensor indices = widened(call.input(0)).to(at::kLong);
  const auto depth = static_cast<std::int64_t>(call.number(1));
  const Tensor& values = call.input(2);
  call.require(values.numel() == 2, "values must be two numbers");
  call.require(depth > 0, "depth must be positive");
  const std::int64_t axis = call.axis(call.integer("axis", -1), indices.dim() + 1);
  std::vector<std::int64_t> sizes = indices.sizes().vec();
  sizes.insert(sizes.begin() + axis, depth);
  call.require_room(sizes);
  std::vector<std::int64_t> view(sizes.size(), 1);
  view[static_cast<std::size_t>(axis)] = depth;
  const Tensor classes = at::arange(depth, indices.options()).reshape(view);
  const Tensor wanted = at::where(indices.lt(0), indices.add(depth), indices).unsqueeze(axis);
  const Tensor bits = as_bits(values).reshape({2});
  call.result(at::where(classes.eq(wanted), bits.select(0, 1), bits.select(0, 0)).view(values.scalar_type()),
              call.dtype(2));
}

// ---------------------------------------------------------------- windows: a0 - a1 cos(2πn/N) + a2 cos(4πn/N)

struct Cosines {
  double a0;
  double a1;
  double a2;
};

void window(Call& call, const Cosines& factors) {
  const std::int64_t size = call.integer(0);
  call.require(size >= 0, "the size is negative");
  call.require_room({size, 8});  // float64, and what is in between
  const auto divisor = static_cast<double>(call.flag("periodic", true) ? size : size - 1);
  const auto options = at::TensorOptions(at::kDouble).device(call.device());
  const Tensor angle = at::arange(size, options).mul(2 * std::numbers::pi / divisor);  // ONNX: 0 / 0 for one
  const Tensor values = angle.cos().mul(-factors.a1).add(factors.a0).add(angle.mul(2).cos().mul(factors.a2));
  call.result(converted(Datum::of(values, DType::kFloat64), dtype_attribute(call, "output_datatype", DType::kFloat32)));
}

void run_hann(Call& call) { window(call, {0.5, 0.5, 0}); }
void run_hamming(Call& call) { window(call, {25.0 / 46.0, 1.0 - 25.0 / 46.0, 0}); }
void run_blackman(Call& call) { window(call, {0.42, 0.5, 0.08}); }

}  // namespace

void populate_creation(OperatorTable& table) {
  table.add("ConstantOfShape", run_constant_of_shape);
  table.add("Range", run_range);
  table.add("EyeLike", run_eye_like);
  table.add("OneHot", run_one_hot);
  table.add("HannWindow", run_hann);
  table.add("HammingWindow", run_hamming);
  table.add("BlackmanWindow", run_blackman);
}

}  // namespace exportguard::evaluator
