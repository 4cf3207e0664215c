#include <limits>
#include <string>

#include "exportguard/lowering/table.h"
#include "lowering/iteration.h"
#include "lowering/wide_arithmetic.h"

/// Orthogonal polynomials whose degree is a tensor: their three-term recurrences up to the greatest degree.
namespace exportguard::lowering {
namespace {

using namespace wide;

constexpr std::int64_t kGreatestDegree = std::int64_t{1} << 20;

/// p1 from x, and p(k + 2) from p(k + 1), p(k), x and k.
struct Recurrence {
  Value* (*first)(LoweringContext&, Value* x);
  Value* (*next)(LoweringContext&, Value* later, Value* earlier, Value* x, Value* k);
  Value* (*cosine)(LoweringContext&, Value* x) = nullptr;  ///< where it is one, torch has a closed form; null: nowhere
  bool is_limited = false;                                 ///< torch has no number of a greater degree
};

constexpr std::int64_t kGreatestFloat32 = 128;
constexpr std::int64_t kGreatestFloat64 = 512;

/// In the dtype of the result, as torch has it: what overflows there is infinite, then NaN.
Value* rounded_value(LoweringContext& ctx, Value* x) {
  return ctx.output_dtype() == kWide ? x : ctx.cast(ctx.cast(x, ctx.output_dtype()), kWide);
}

Value* rounded_product(LoweringContext& ctx, Value* a, Value* b) { return rounded_value(ctx, product(ctx, a, b)); }

/// Each step is rounded, but where a closed form is exact.
Value* rounded_step(LoweringContext& ctx, const Recurrence& family, Value* x, Value* step) {
  Value* rounded = rounded_value(ctx, step);
  if (family.cosine == nullptr || rounded == step) return rounded;
  return ctx.where(is_below(ctx, ctx.op("Abs", {family.cosine(ctx, x)}), 1), step, rounded);
}

/// The degree is cut to a whole number; a polynomial of a negative degree is 0.
void lower_family(LoweringContext& ctx, const Recurrence& family) {
  Value* given_x = input(ctx, 0);
  Value* zeros = zeros_of_both(ctx, given_x, input(ctx, 1));
  Value* degree = ctx.cast(ctx.cast(input(ctx, 1), DType::kInt64), kWide);
  Value* x = sum(ctx, given_x, zeros);
  Value* flat = ctx.concat({ctx.reshape(degree, {Size(-1)}), ctx.filled({1}, number(ctx, 0))}, 0);
  Value* greatest = ctx.reduce("ReduceMax", flat, {0}, false);
  Value* count = ctx.op("Min", {plus(ctx, greatest, 1), number(ctx, static_cast<double>(kGreatestDegree))});
  const WriteStep advance = [&](Value* iteration, const std::vector<Value*>& state) {
    Value* k = ctx.cast(iteration, kWide);
    Value* result = ctx.where(ctx.op("Equal", {degree, k}), state[0], state[2]);
    Value* next = rounded_step(ctx, family, x, family.next(ctx, state[1], state[0], x, k));
    return Step{{state[1], next, result}};
  };
  const std::vector<Value*> initial = {plus(ctx, zeros, 1), family.first(ctx, x), zeros};
  Value* found = repeated(ctx, ctx.cast(count, DType::kInt64), initial, advance)[2];
  if (!family.is_limited) return ctx.result(found);
  const std::int64_t greatest_known = ctx.output_dtype() == kWide ? kGreatestFloat64 : kGreatestFloat32;
  Value* is_unknown = ctx.op("Greater", {degree, number(ctx, static_cast<double>(greatest_known))});
  ctx.result(ctx.where(is_unknown, number(ctx, std::numeric_limits<double>::quiet_NaN()), found));
}

Value* shifted(LoweringContext& ctx, Value* x) { return plus(ctx, times(ctx, x, 2), -1); }

// ------------------------------------------------------------------------------------------------ Chebyshev

Value* chebyshev_next(LoweringContext& ctx, Value* later, Value* earlier, Value* x, Value*) {
  return difference(ctx, product(ctx, times(ctx, x, 2), later), earlier);
}

Value* shifted_next(LoweringContext& ctx, Value* later, Value* earlier, Value* x, Value* k) {
  return chebyshev_next(ctx, later, earlier, shifted(ctx, x), k);
}

Value* itself(LoweringContext&, Value* x) { return x; }
Value* t_first(LoweringContext&, Value* x) { return x; }
Value* u_first(LoweringContext& ctx, Value* x) { return times(ctx, x, 2); }
Value* v_first(LoweringContext& ctx, Value* x) { return plus(ctx, times(ctx, x, 2), -1); }
Value* w_first(LoweringContext& ctx, Value* x) { return plus(ctx, times(ctx, x, 2), 1); }
Value* shifted_t_first(LoweringContext& ctx, Value* x) { return shifted(ctx, x); }
Value* shifted_u_first(LoweringContext& ctx, Value* x) { return u_first(ctx, shifted(ctx, x)); }
Value* shifted_v_first(LoweringContext& ctx, Value* x) { return v_first(ctx, shifted(ctx, x)); }
Value* shifted_w_first(LoweringContext& ctx, Value* x) { return w_first(ctx, shifted(ctx, x)); }

void lower_chebyshev_t(LoweringContext& ctx) { lower_family(ctx, {t_first, chebyshev_next, itself}); }
void lower_chebyshev_u(LoweringContext& ctx) { lower_family(ctx, {u_first, chebyshev_next, itself}); }
void lower_chebyshev_v(LoweringContext& ctx) { lower_family(ctx, {v_first, chebyshev_next, itself}); }
void lower_chebyshev_w(LoweringContext& ctx) { lower_family(ctx, {w_first, chebyshev_next, itself}); }
void lower_shifted_t(LoweringContext& ctx) { lower_family(ctx, {shifted_t_first, shifted_next, shifted}); }
void lower_shifted_u(LoweringContext& ctx) { lower_family(ctx, {shifted_u_first, shifted_next, shifted}); }
void lower_shifted_v(LoweringContext& ctx) { lower_family(ctx, {shifted_v_first, shifted_next, shifted}); }
void lower_shifted_w(LoweringContext& ctx) { lower_family(ctx, {shifted_w_first, shifted_next, shifted}); }

// ------------------------------------------------------------------------------------------------ others

/// x p(k + 1) - (k + 1) p(k)
Value* he_next(LoweringContext& ctx, Value* later, Value* earlier, Value* x, Value* k) {
  return difference(ctx, rounded_product(ctx, x, later), rounded_product(ctx, plus(ctx, k, 1), earlier));
}

Value* h_next(LoweringContext& ctx, Value* later, Value* earlier, Value* x, Value* k) {
  return he_next(ctx, later, times(ctx, earlier, 2), times(ctx, x, 2), k);
}

/// (factor p(k + 1) - (k + 1) p(k)) / (k + 2)
Value* averaged(LoweringContext& ctx, Value* factor, Value* later, Value* earlier, Value* k) {
  Value* total = difference(ctx, rounded_product(ctx, factor, later), rounded_product(ctx, plus(ctx, k, 1), earlier));
  return quotient(ctx, rounded_value(ctx, total), plus(ctx, k, 2));
}

Value* odd(LoweringContext& ctx, Value* k) { return plus(ctx, times(ctx, k, 2), 3); }

Value* legendre_next(LoweringContext& ctx, Value* later, Value* earlier, Value* x, Value* k) {
  return averaged(ctx, product(ctx, odd(ctx, k), x), later, earlier, k);
}

Value* laguerre_first(LoweringContext& ctx, Value* x) { return difference(ctx, number(ctx, 1), x); }

Value* laguerre_next(LoweringContext& ctx, Value* later, Value* earlier, Value* x, Value* k) {
  return averaged(ctx, difference(ctx, odd(ctx, k), x), later, earlier, k);
}

void lower_hermite_h(LoweringContext& ctx) { lower_family(ctx, {u_first, h_next, nullptr, true}); }
void lower_hermite_he(LoweringContext& ctx) { lower_family(ctx, {t_first, he_next, nullptr, true}); }
void lower_legendre(LoweringContext& ctx) { lower_family(ctx, {t_first, legendre_next}); }
void lower_laguerre(LoweringContext& ctx) { lower_family(ctx, {laguerre_first, laguerre_next}); }

/// The tensor overload and those where one of both is a number.
void add_family(LoweringTable& table, const std::string& name, Lowering lowering) {
  for (const char* overload : {".default", ".x_scalar", ".n_scalar"}) {
    table.add("aten.special_" + name + overload, lowering);
  }
}

}  // namespace

void populate_orthogonal_polynomials(LoweringTable& table) {
  add_family(table, "chebyshev_polynomial_t", lower_chebyshev_t);
  add_family(table, "chebyshev_polynomial_u", lower_chebyshev_u);
  add_family(table, "chebyshev_polynomial_v", lower_chebyshev_v);
  add_family(table, "chebyshev_polynomial_w", lower_chebyshev_w);
  add_family(table, "shifted_chebyshev_polynomial_t", lower_shifted_t);
  add_family(table, "shifted_chebyshev_polynomial_u", lower_shifted_u);
  add_family(table, "shifted_chebyshev_polynomial_v", lower_shifted_v);
  add_family(table, "shifted_chebyshev_polynomial_w", lower_shifted_w);
  add_family(table, "hermite_polynomial_h", lower_hermite_h);
  add_family(table, "hermite_polynomial_he", lower_hermite_he);
  add_family(table, "legendre_polynomial_p", lower_legendre);
  add_family(table, "laguerre_polynomial_l", lower_laguerre);
}

}  // namespace exportguard::lowering
