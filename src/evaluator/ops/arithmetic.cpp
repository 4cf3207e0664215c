// Arithmetic with broadcasting, https://onnx.ai/onnx/operators: Add, Sub, Mul, Div, Mod, Pow, Sum, Mean, Max, Min.
#include <ATen/ops/div.h>
#include <ATen/ops/fmod.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/where.h>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;

template <typename Compute>
void elementwise(Call& call, Compute compute) {
  const Tensor& a = call.input(0);
  const Tensor& b = call.input(1);
  call.result(narrowed(compute(widened(a), widened(b)), a.scalar_type()));
}

void run_add(Call& call) {
  elementwise(call, [](const Tensor& a, const Tensor& b) { return a.add(b); });
}
void run_sub(Call& call) {
  elementwise(call, [](const Tensor& a, const Tensor& b) { return a.sub(b); });
}
void run_mul(Call& call) {
  elementwise(call, [](const Tensor& a, const Tensor& b) { return a.mul(b); });
}

// The one quotient of two signed integers that does not fit stops the process on x86; -1 is taken care of apart.
template <typename Compute>
Tensor without_minus_one(const Tensor& a, const Tensor& b, const Tensor& for_minus_one, Compute compute) {
  const Tensor is_minus_one = b.eq(-1);
  if (!is_minus_one.any().item<bool>()) return compute(a, b);
  return at::where(is_minus_one, for_minus_one, compute(a, at::where(is_minus_one, 1, b)));
}

Tensor divided(const Tensor& a, const Tensor& b) {
  if (!at::isIntegralType(a.scalar_type(), false)) return a.div(b);
  const auto truncated = [](const Tensor& x, const Tensor& y) { return at::div(x, y, "trunc"); };
  if (a.scalar_type() == at::kByte) return truncated(a, b);
  return without_minus_one(a, b, a.neg(), truncated);
}

std::uint64_t quotient(std::uint64_t a, std::uint64_t b) { return b == 0 ? 0 : a / b; }
std::uint64_t rest(std::uint64_t a, std::uint64_t b) { return b == 0 ? 0 : a % b; }

void run_div(Call& call) {
  if (!is_wide_unsigned(call.input(0).scalar_type())) return elementwise(call, divided);
  call.require(call.input(1).view(at::kLong).ne(0).all().item<bool>(), "division by zero");
  call.result(of_unsigned(call.input(0), call.input(1), quotient).view(at::kUInt64));
}

void run_mod(Call& call) {
  const bool is_fmod = call.flag("fmod");
  if (is_wide_unsigned(call.input(0).scalar_type())) {
    call.require(call.input(1).view(at::kLong).ne(0).all().item<bool>(), "division by zero");
    return call.result(of_unsigned(call.input(0), call.input(1), rest).view(at::kUInt64));
  }
  elementwise(call, [&](const Tensor& a, const Tensor& b) {
    const auto modulo = [&](const Tensor& x, const Tensor& y) {
      return is_fmod ? at::fmod(x, y) : at::remainder(x, y);
    };
    const bool is_signed = at::isIntegralType(a.scalar_type(), false) && a.scalar_type() != at::kByte;
    return is_signed ? without_minus_one(a, b, a.mul(0), modulo) : modulo(a, b);
  });
}

// The result has the dtype of the base, whatever that of the exponent.
void run_pow(Call& call) {
  const Tensor& base = call.input(0);
  const Tensor exponent = widened(call.input(1));
  const Tensor wide = widened(base);
  const bool is_vast = is_wide_unsigned(call.input(1).scalar_type()) && exponent.lt(0).any().item<bool>();
  call.require(!is_vast, "an exponent is 2^63 or more");
  const bool is_whole = at::isIntegralType(wide.scalar_type(), false) && at::isFloatingType(exponent.scalar_type());
  if (is_whole) {
    return call.result(at::pow(base.to(at::kDouble), exponent.to(at::kDouble)).to(base.scalar_type()));
  }
  call.result(narrowed(at::pow(wide, exponent).to(wide.scalar_type()), base.scalar_type()));
}

template <typename Compute>
void run_extreme(Call& call, Compute compute) {
  Tensor result = ordered(call.input(0));
  for (std::size_t i = 1; i < call.input_count(); ++i) result = compute(result, ordered(call.input(i)));
  call.result(from_ordered(result, call.input(0).scalar_type()));
}

void run_max(Call& call) {
  run_extreme(call, [](const Tensor& a, const Tensor& b) { return at::maximum(a, b); });
}

void run_min(Call& call) {
  run_extreme(call, [](const Tensor& a, const Tensor& b) { return at::minimum(a, b); });
}

// Both accumulate in float32 whatever the dtype and round once.
Tensor sum_of(Call& call) {
  Tensor sum = raised(call.input(0));
  for (std::size_t i = 1; i < call.input_count(); ++i) sum = sum.add(raised(call.input(i)));
  return sum;
}

void run_sum(Call& call) { call.result(sum_of(call).to(call.input(0).scalar_type())); }

void run_mean(Call& call) {
  const auto count = static_cast<double>(call.input_count());
  call.result(sum_of(call).div(count).to(call.input(0).scalar_type()));
}

}  // namespace

void populate_arithmetic(OperatorTable& table) {
  table.add("Add", run_add);
  table.add("Sub", run_sub);
  table.add("Mul", run_mul);
  table.add("Div", run_div);
  table.add("Mod", run_mod);
  table.add("Pow", run_pow);
  table.add("Max", run_max);
  table.add("Min", run_min);
  table.add("Sum", run_sum);
  table.add("Mean", run_mean);
}

}  // namespace exportguard::evaluator
