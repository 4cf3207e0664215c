// Comparison, logic and bits.
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_not.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/logical_xor.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;

Tensor compared(const Tensor& tensor) {
  return c10::isFloat8Type(tensor.scalar_type()) ? tensor.to(at::kFloat) : ordered(tensor);
}

void run_equal(Call& call) { call.result(compared(call.input(0)).eq(compared(call.input(1)))); }
void run_less(Call& call) { call.result(compared(call.input(0)).lt(compared(call.input(1)))); }
void run_less_or_equal(Call& call) { call.result(compared(call.input(0)).le(compared(call.input(1)))); }
void run_greater(Call& call) { call.result(compared(call.input(0)).gt(compared(call.input(1)))); }
void run_greater_or_equal(Call& call) { call.result(compared(call.input(0)).ge(compared(call.input(1)))); }

void run_and(Call& call) { call.result(at::logical_and(call.input(0), call.input(1))); }
void run_or(Call& call) { call.result(at::logical_or(call.input(0), call.input(1))); }
void run_xor(Call& call) { call.result(at::logical_xor(call.input(0), call.input(1))); }
void run_not(Call& call) { call.result(at::logical_not(call.input(0))); }

template <typename Compute>
void bitwise(Call& call, Compute compute) {
  const Tensor& a = call.input(0);
  call.result(narrowed(compute(widened(a), widened(call.input(1))), a.scalar_type()));
}

void run_bitwise_and(Call& call) {
  bitwise(call, [](const Tensor& a, const Tensor& b) { return at::bitwise_and(a, b); });
}
void run_bitwise_or(Call& call) {
  bitwise(call, [](const Tensor& a, const Tensor& b) { return at::bitwise_or(a, b); });
}
void run_bitwise_xor(Call& call) {
  bitwise(call, [](const Tensor& a, const Tensor& b) { return at::bitwise_xor(a, b); });
}
void run_bitwise_not(Call& call) {
  call.result(narrowed(at::bitwise_not(widened(call.input(0))), call.input(0).scalar_type()));
}

std::uint64_t shifted_left(std::uint64_t a, std::uint64_t b) { return b < 64 ? a << b : 0; }
std::uint64_t shifted_right(std::uint64_t a, std::uint64_t b) { return b < 64 ? a >> b : 0; }

void run_bit_shift(Call& call) {
  const std::string direction = call.text("direction", "");
  call.require(direction == "LEFT" || direction == "RIGHT", "direction must be LEFT or RIGHT");
  const bool is_left = direction == "LEFT";
  const Tensor& a = call.input(0);
  if (is_wide_unsigned(a.scalar_type())) {
    const auto shift = is_left ? shifted_left : shifted_right;
    return call.result(of_unsigned(a, call.input(1), shift).view(at::kUInt64));
  }
  bitwise(call, [&](const Tensor& x, const Tensor& bits) {
    return is_left ? at::bitwise_left_shift(x, bits) : at::bitwise_right_shift(x, bits);
  });
}

Tensor readable(const Tensor& x) { return c10::isFloat8Type(x.scalar_type()) ? x.to(at::kFloat) : x; }

void run_is_nan(Call& call) { call.result(at::isnan(readable(call.input(0)))); }

void run_is_inf(Call& call) {
  const Tensor x = readable(call.input(0));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Tensor found = at::zeros_like(x, x.options().dtype(at::kBool));
  if (call.flag("detect_positive", true)) found = at::logical_or(found, x.eq(kInfinity));
  if (call.flag("detect_negative", true)) found = at::logical_or(found, x.eq(-kInfinity));
  call.result(found);
}

}  // namespace

void populate_comparison(OperatorTable& table) {
  table.add("Equal", run_equal);
  table.add("Less", run_less);
  table.add("LessOrEqual", run_less_or_equal);
  table.add("Greater", run_greater);
  table.add("GreaterOrEqual", run_greater_or_equal);
  table.add("And", run_and);
  table.add("Or", run_or);
  table.add("Xor", run_xor);
  table.add("Not", run_not);
  table.add("BitwiseAnd", run_bitwise_and);
  table.add("BitwiseOr", run_bitwise_or);
  table.add("BitwiseXor", run_bitwise_xor);
  table.add("BitwiseNot", run_bitwise_not);
  table.add("BitShift", run_bit_shift);
  table.add("IsNaN", run_is_nan);
  table.add("IsInf", run_is_inf);
}

}  // namespace exportguard::evaluator
