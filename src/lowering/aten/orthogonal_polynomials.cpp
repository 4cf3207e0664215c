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
};

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
    return Step{{state[1], family.next(ctx, state[1], state[0], x, k), result}};
  };
  const std::vector<Value*> initial = {plus(ctx, zeros, 1), family.first(ctx, x), zeros};
  ctx.result(repeated(ctx, ctx.cast(count, DType::kInt64), initial, advance)[2]);
}

Value* shifted(LoweringContext& ctx, Value* x) { return plus(ctx, times(ctx, x, 2), -1); }

// ------------------------------------------------------------------------------------------------ Chebyshev

Value* chebyshev_next(LoweringContext& ctx, Value* later, Value* earlier, Value* x, Value*) {
  return difference(ctx, product(ctx, times(ctx, x, 2), later), earlier);
}

Value* shifted_next(LoweringContext& ctx, Value* later, Value* earlier, Value* x, Value* k) {
  return chebyshev_next(ctx, later, earlier, shifted(ctx, x), k);
}

Value* t_first(LoweringContext&, Value* x) { return x; }
Value* u_first(LoweringContext& ctx, Value* x) { return times(ctx, x, 2); }
Value* v_first(LoweringContext& ctx, Value* x) { return plus(ctx, times(ctx, x, 2), -1); }
Value* w_first(LoweringContext& ctx, Value* x) { return plus(ctx, times(ctx, x, 2), 1); }
Value* shifted_t_first(LoweringContext& ctx, Value* x) { return shifted(ctx, x); }
Value* shifted_u_first(LoweringContext& ctx, Value* x) { return u_first(ctx, shifted(ctx, x)); }
Value* shifted_v_first(LoweringContext& ctx, Value* x) { return v_first(ctx, shifted(ctx, x)); }
Value* shifted_w_first(LoweringContext& ctx, Value* x) { return w_first(ctx, shifted(ctx, x)); }

void lower_chebyshev_t(LoweringContext& ctx) { lower_family(ctx, {t_first, chebyshev_next}); }
void lower_chebyshev_u(LoweringContext& ctx) { lower_family(ctx, {u_first, chebyshev_next}); }
void lower_chebyshev_v(LoweringContext& ctx) { lower_family(ctx, {v_first, chebyshev_next}); }
void lower_chebyshev_w(LoweringContext& ctx) { lower_family(ctx, {w_first, chebyshev_next}); }
void lower_shifted_t(LoweringContext& ctx) { lower_family(ctx, {shifted_t_first, shifted_next}); }
void lower_shifted_u(LoweringContext& ctx) { lower_family(ctx, {shifted_u_first, shifted_next}); }
void lower_shifted_v(LoweringContext& ctx) { lower_family(ctx, {shifted_v_first, shifted_next}); }
void lower_shifted_w(LoweringContext& ctx) { lower_family(ctx, {shifted_w_first, shifted_next}); }

// ------------------------------------------------------------------------------------------------ others

/// x p(k + 1) - (k + 1) p(k)
Value* he_next(LoweringContext& ctx, Value* later, Value* earlier, Value* x, Value* k) {
  return difference(ctx, product(ctx, x, later), product(ctx, plus(ctx, k, 1), earlier));
}

Value* h_next(LoweringContext& ctx, Value* later, Value* earlier, Value* x, Value* k) {
  return times(ctx, he_next(ctx, later, earlier, x, k), 2);
}

/// (factor p(k + 1) - (k + 1) p(k)) / (k + 2)
Value* averaged(LoweringContext& ctx, Value* factor, Value* later, Value* earlier, Value* k) {
  Value* total = difference(ctx, product(ctx, factor, later), product(ctx, plus(ctx, k, 1), earlier));
  return quotient(ctx, total, plus(ctx, k, 2));
}

Value* odd(LoweringContext& ctx, Value* k) { return plus(ctx, times(ctx, k, 2), 3); }

Value* legendre_next(LoweringContext& ctx, Value* later, Value* earlier, Value* x, Value* k) {
  return averaged(ctx, product(ctx, odd(ctx, k), x), later, earlier, k);
}

Value* laguerre_first(LoweringContext& ctx, Value* x) { return difference(ctx, number(ctx, 1), x); }

Value* laguerre_next(LoweringContext& ctx, Value* later, Value* earlier, Value* x, Value* k) {
  return averaged(ctx, difference(ctx, odd(ctx, k), x), later, earlier, k);
}

void lower_hermite_h(LoweringContext& ctx) { lower_family(ctx, {u_first, h_next}); }
void lower_hermite_he(LoweringContext& ctx) { lower_family(ctx, {t_first, he_next}); }
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
