// Functions of one number.
#include <ATen/core/Tensor.h>
#include <ATen/ops/linalg_det.h>
#include <ATen/ops/where.h>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

void run_ceil(Call& call) { call.result(call.input(0).ceil()); }
void run_floor(Call& call) { call.result(call.input(0).floor()); }
void run_sqrt(Call& call) { call.result(call.input(0).sqrt()); }
void run_exp(Call& call) { call.result(call.input(0).exp()); }
void run_log(Call& call) { call.result(call.input(0).log()); }
void run_sin(Call& call) { call.result(call.input(0).sin()); }
void run_cos(Call& call) { call.result(call.input(0).cos()); }
void run_tan(Call& call) { call.result(call.input(0).tan()); }
void run_asin(Call& call) { call.result(call.input(0).asin()); }
void run_acos(Call& call) { call.result(call.input(0).acos()); }
void run_atan(Call& call) { call.result(call.input(0).atan()); }
void run_sinh(Call& call) { call.result(call.input(0).sinh()); }
void run_cosh(Call& call) { call.result(call.input(0).cosh()); }
void run_asinh(Call& call) { call.result(call.input(0).asinh()); }
void run_acosh(Call& call) { call.result(call.input(0).acosh()); }
void run_atanh(Call& call) { call.result(call.input(0).atanh()); }
void run_erf(Call& call) { call.result(call.input(0).erf()); }
void run_reciprocal(Call& call) { call.result(call.input(0).reciprocal()); }
void run_round(Call& call) { call.result(call.input(0).round()); }
void run_tanh(Call& call) { call.result(call.input(0).tanh()); }
void run_sigmoid(Call& call) { call.result(call.input(0).sigmoid()); }

void run_neg(Call& call) { call.result(call.input(0).neg()); }

// What has no sign is its own absolute value.
void run_abs(Call& call) {
  const at::Tensor& x = call.input(0);
  const bool has_sign = !as_bits(x).is_same(x) ? false : x.scalar_type() != at::kByte;
  call.result(has_sign ? x.abs() : x);
}

void run_sign(Call& call) {
  const at::Tensor& x = call.input(0);
  if (at::isFloatingType(x.scalar_type())) return call.result(at::where(x.isnan(), x, x.sign()));  // torch has 0 of NaN
  if (as_bits(x).scalar_type() == x.scalar_type()) return call.result(x.sign());
  call.result(narrowed(widened(x).ne(0).to(at::kLong), x.scalar_type()));
}

void run_det(Call& call) {
  call.result(in_float(call.input(0), [](const at::Tensor& x) { return at::linalg_det(x); }));
}

}  // namespace

void populate_unary(OperatorTable& table) {
  table.add("Ceil", run_ceil);
  table.add("Floor", run_floor);
  table.add("Sqrt", run_sqrt);
  table.add("Exp", run_exp);
  table.add("Log", run_log);

  table.add("Sin", run_sin);
  table.add("Cos", run_cos);
  table.add("Tan", run_tan);
  table.add("Asin", run_asin);
  table.add("Acos", run_acos);
  table.add("Atan", run_atan);
  table.add("Sinh", run_sinh);
  table.add("Cosh", run_cosh);
  table.add("Asinh", run_asinh);
  table.add("Acosh", run_acosh);
  table.add("Atanh", run_atanh);

  table.add("Erf", run_erf);
  table.add("Reciprocal", run_reciprocal);
  table.add("Round", run_round);
  table.add("Tanh", run_tanh);
  table.add("Sigmoid", run_sigmoid);
  table.add("Neg", run_neg);
  table.add("Abs", run_abs);
  table.add("Sign", run_sign);
  table.add("Det", run_det);
}

}  // namespace exportguard::evaluator
