// Random numbers. A seed gives the same numbers again, though not those of another runtime: ONNX fixes no generator.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>

#include <bit>

#include "evaluator/call.h"
#include "evaluator/conversion.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;

std::optional<at::Generator> generator(const Call& call) {
  const ir::Attribute* seed = call.node().find_attribute("seed");
  if (seed == nullptr) return std::nullopt;
  const auto* whole = std::get_if<std::int64_t>(seed);
  const std::uint64_t bits =
      whole != nullptr ? static_cast<std::uint64_t>(*whole) : std::bit_cast<std::uint64_t>(call.number("seed", 0));
  return at::detail::createCPUGenerator(bits);
}

DType dtype_attribute(const Call& call, DType otherwise) {
  const std::int64_t number = call.integer("dtype", static_cast<std::int64_t>(otherwise));
  call.require(number > 0 && number <= static_cast<std::int64_t>(DType::kInt2), "there is no such dtype");
  return static_cast<DType>(number);
}

void give(Call& call, const Tensor& numbers, DType to) {
  call.result(converted(Datum::of(numbers.to(call.device()), DType::kFloat32), to));
}

Tensor room(const Call& call, at::IntArrayRef sizes) {
  call.require_room(sizes);
  return at::empty(sizes, at::kFloat);
}

Tensor normal(const Call& call, at::IntArrayRef sizes) {
  return room(call, sizes).normal_(call.number("mean", 0.0), call.number("scale", 1.0), generator(call));
}

Tensor uniform(const Call& call, at::IntArrayRef sizes) {
  return room(call, sizes).uniform_(call.number("low", 0.0), call.number("high", 1.0), generator(call));
}

void run_normal(Call& call) {
  give(call, normal(call, call.integers("shape")), dtype_attribute(call, DType::kFloat32));
}
void run_normal_like(Call& call) {
  give(call, normal(call, call.input(0).sizes()), dtype_attribute(call, call.dtype(0)));
}
void run_uniform(Call& call) {
  give(call, uniform(call, call.integers("shape")), dtype_attribute(call, DType::kFloat32));
}
void run_uniform_like(Call& call) {
  give(call, uniform(call, call.input(0).sizes()), dtype_attribute(call, call.dtype(0)));
}

void run_bernoulli(Call& call) {
  const Tensor drawn = room(call, call.input(0).sizes()).uniform_(0, 1, generator(call));
  give(call, drawn.lt(call.input(0).to(at::kCPU, at::kFloat)).to(at::kFloat), dtype_attribute(call, call.dtype(0)));
}

// Its input are logarithms of probabilities.
void run_multinomial(Call& call) {
  const Tensor weights = at::softmax(call.input(0).to(at::kCPU, at::kFloat), -1);
  const Tensor drawn = at::multinomial(weights, call.integer("sample_size", 1), true, generator(call));
  const DType to = dtype_attribute(call, DType::kInt32);
  call.result(converted(Datum::of(drawn.to(call.device()), DType::kInt64), to));
}

// Without training the input itself, and a mask of nothing but ones.
void run_dropout(Call& call) {
  const Tensor& x = call.input(0);
  const bool is_training = call.has(2) && call.input(2).item().toBool();
  const double ratio = call.has(1) ? call.number(1) : call.number("ratio", 0.5);
  call.require(ratio >= 0 && ratio < 1, "ratio must be at least 0 and less than 1");
  if (!is_training || ratio == 0) {
    call.result(call.datum(0));
    return call.result(at::ones_like(x, x.options().dtype(at::kBool)));
  }
  const Tensor mask = room(call, x.sizes()).uniform_(0, 1, generator(call)).ge(ratio).to(x.device());
  call.result(at::where(mask, raised(x).div(1 - ratio), scalar_like(0, raised(x))).to(x.scalar_type()));
  call.result(mask);
}

}  // namespace

void populate_random(OperatorTable& table) {
  table.add("RandomNormal", run_normal);
  table.add("RandomNormalLike", run_normal_like);
  table.add("RandomUniform", run_uniform);
  table.add("RandomUniformLike", run_uniform_like);
  table.add("Bernoulli", run_bernoulli);
  table.add("Multinomial", run_multinomial);
  table.add("Dropout", run_dropout);
}

}  // namespace exportguard::evaluator
