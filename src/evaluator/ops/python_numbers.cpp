// Python's arithmetic on SymInts, SymFloats and SymBools at the torch level: tensors of rank 0, int64, float64 or bool.
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "evaluator/call.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using ir::Argument;

at::Scalar scalar_of(const Call& call, const Argument& argument) {
  if (const auto* operand = argument.get_if<Argument::Operand>()) return call.input(operand->index).item();
  if (const auto* flag = argument.get_if<bool>()) return *flag;
  if (const auto* whole = argument.get_if<std::int64_t>()) return *whole;
  if (const auto* real = argument.get_if<double>()) return *real;
  call.fail("an argument is no number");
}

at::Scalar scalar(const Call& call, std::size_t i) {
  call.require(i < call.node().arguments().size(), "an argument is missing");
  return scalar_of(call, call.node().arguments()[i]);
}

void give(Call& call, const at::Scalar& value) {
  call.result(at::scalar_tensor(value, at::TensorOptions(call.device()).dtype(value.type())));
}

bool is_real(const at::Scalar& number) { return number.isFloatingPoint(); }

// Integers stay integers, as long as no operand is a float. A bool counts as 0 or 1.
template <typename Compute>
void binary(Call& call, Compute compute) {
  const at::Scalar a = scalar(call, 0);
  const at::Scalar b = scalar(call, 1);
  if (is_real(a) || is_real(b)) return give(call, compute(a.toDouble(), b.toDouble()));
  give(call, compute(a.toLong(), b.toLong()));
}

template <typename Compute>
void real(Call& call, Compute compute) {
  give(call, compute(scalar(call, 0).toDouble()));
}

std::int64_t floored(std::int64_t a, std::int64_t b) { return a / b - ((a % b != 0) && ((a < 0) != (b < 0)) ? 1 : 0); }
double floored(double a, double b) { return std::floor(a / b); }
std::int64_t modulo(std::int64_t a, std::int64_t b) { return a - floored(a, b) * b; }
double modulo(double a, double b) { return a - std::floor(a / b) * b; }

void require_divisor(const Call& call) {
  const at::Scalar b = scalar(call, 1);
  call.require(b.toDouble() != 0, "division by zero");
  call.require(is_real(b) || b.toLong() != -1 || is_real(scalar(call, 0)) ||
                   scalar(call, 0).toLong() != std::numeric_limits<std::int64_t>::min(),
               "the quotient does not fit");
}

void run_add(Call& call) {
  binary(call, [](auto a, auto b) { return a + b; });
}
void run_sub(Call& call) {
  binary(call, [](auto a, auto b) { return a - b; });
}
void run_mul(Call& call) {
  binary(call, [](auto a, auto b) { return a * b; });
}
void run_max(Call& call) {
  binary(call, [](auto a, auto b) { return std::max(a, b); });
}
void run_min(Call& call) {
  binary(call, [](auto a, auto b) { return std::min(a, b); });
}
void run_eq(Call& call) {
  binary(call, [](auto a, auto b) { return a == b; });
}
void run_ne(Call& call) {
  binary(call, [](auto a, auto b) { return a != b; });
}
void run_lt(Call& call) {
  binary(call, [](auto a, auto b) { return a < b; });
}
void run_le(Call& call) {
  binary(call, [](auto a, auto b) { return a <= b; });
}
void run_gt(Call& call) {
  binary(call, [](auto a, auto b) { return a > b; });
}
void run_ge(Call& call) {
  binary(call, [](auto a, auto b) { return a >= b; });
}

void run_floordiv(Call& call) {
  require_divisor(call);
  binary(call, [](auto a, auto b) { return floored(a, b); });
}
void run_mod(Call& call) {
  require_divisor(call);
  binary(call, [](auto a, auto b) { return modulo(a, b); });
}
void run_truediv(Call& call) {
  require_divisor(call);
  give(call, scalar(call, 0).toDouble() / scalar(call, 1).toDouble());
}

void run_pow(Call& call) {
  const at::Scalar a = scalar(call, 0);
  const at::Scalar b = scalar(call, 1);
  if (is_real(a) || is_real(b) || b.toLong() < 0) return give(call, std::pow(a.toDouble(), b.toDouble()));
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < b.toLong() && result != 0; ++i) {
    call.require(!__builtin_mul_overflow(result, a.toLong(), &result), "the power does not fit");
    if (a.toLong() == 1) break;
    if (a.toLong() == -1) {
      result = b.toLong() % 2 == 0 ? 1 : -1;
      break;
    }
  }
  give(call, result);
}

void run_neg(Call& call) {
  const at::Scalar a = scalar(call, 0);
  give(call, is_real(a) ? at::Scalar(-a.toDouble()) : at::Scalar(-a.toLong()));
}

void run_and(Call& call) { give(call, scalar(call, 0).toBool() && scalar(call, 1).toBool()); }
void run_or(Call& call) { give(call, scalar(call, 0).toBool() || scalar(call, 1).toBool()); }
void run_not(Call& call) { give(call, !scalar(call, 0).toBool()); }

std::int64_t whole(double number) { return static_cast<std::int64_t>(number); }
void run_floor(Call& call) {
  real(call, [](double x) { return whole(std::floor(x)); });
}
void run_ceil(Call& call) {
  real(call, [](double x) { return whole(std::ceil(x)); });
}
void run_trunc(Call& call) {
  real(call, [](double x) { return whole(std::trunc(x)); });
}
void run_round(Call& call) {
  real(call, [](double x) { return whole(std::nearbyint(x)); });
}
void run_sqrt(Call& call) {
  real(call, [](double x) { return std::sqrt(x); });
}
void run_log2(Call& call) {
  real(call, [](double x) { return std::log2(x); });
}
void run_float(Call& call) {
  real(call, [](double x) { return x; });
}
void run_choice(Call& call) { give(call, scalar(call, 0).toBool() ? scalar(call, 1) : scalar(call, 2)); }

void run_sum(Call& call) {
  call.require(!call.node().arguments().empty(), "an argument is missing");
  const auto* list = call.node().arguments()[0].get_if<Argument::List>();
  call.require(list != nullptr, "its argument must be a list");
  std::int64_t sum = 0;
  for (const Argument& item : *list) sum += scalar_of(call, item).toLong();
  give(call, sum);
}

}  // namespace

void populate_python_numbers(OperatorTable& table) {
  table.add("operator.add", run_add);
  table.add("operator.sub", run_sub);
  table.add("operator.mul", run_mul);

  table.add("operator.eq", run_eq);
  table.add("operator.ne", run_ne);
  table.add("operator.lt", run_lt);
  table.add("operator.le", run_le);
  table.add("operator.gt", run_gt);
  table.add("operator.ge", run_ge);

  table.add("operator.floordiv", run_floordiv);
  table.add("operator.mod", run_mod);
  table.add("operator.truediv", run_truediv);
  table.add("operator.pow", run_pow);
  table.add("operator.neg", run_neg);

  table.add("operator.and_", run_and);
  table.add("operator.or_", run_or);
  table.add({"operator.not_", "torch.sym_not"}, run_not);

  table.add({"math.floor", "builtins.floor"}, run_floor);
  table.add({"math.ceil", "builtins.ceil"}, run_ceil);
  table.add({"math.trunc", "torch.sym_int"}, run_trunc);
  table.add({"builtins.round", "math.round"}, run_round);
  table.add({"math.sqrt", "torch.sym_sqrt", "torch._sym_sqrt"}, run_sqrt);
  table.add({"math.log2", "torch.sym_log2", "torch._sym_log2"}, run_log2);

  table.add({"torch.sym_max", "builtins.max"}, run_max);
  table.add({"torch.sym_min", "builtins.min"}, run_min);
  table.add("torch.sym_float", run_float);
  table.add("torch.sym_ite", run_choice);
  table.add("torch.sym_sum", run_sum);
}

}  // namespace exportguard::evaluator
