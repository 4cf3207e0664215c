#include <limits>

#include "exportguard/lowering/table.h"
#include "lowering/elementwise.h"
#include "lowering/iteration.h"
#include "lowering/kernels.h"
#include "lowering/reductions.h"
#include "lowering/wide_arithmetic.h"

/// Divisors, and the bits of floats.
namespace exportguard::lowering {
namespace {

// ------------------------------------------------------------------------------------------------ divisors

constexpr std::int64_t kMostDivisions = 100;  // Fibonacci's numbers of 64 bits need 91

/// Euclid's algorithm, until every pair is done; the remainders have the signs of C.
Value* greatest_divisor(LoweringContext& ctx, Value* a, Value* b) {
  Value* zero = ctx.constant(0, DType::kInt64);
  const WriteStep divide = [&](Value*, const std::vector<Value*>& state) {
    Value* is_done = ctx.op("Equal", {state[1], zero});
    Value* divisor = ctx.where(is_done, ctx.constant(1, DType::kInt64), state[1]);
    Value* rest = ctx.where(is_done, zero, truncated_remainder(ctx, state[0], divisor));
    Value* next = ctx.where(is_done, state[0], state[1]);
    return Step{{next, rest}, any_true(ctx, ctx.op("Not", {ctx.op("Equal", {rest, zero})}), {})};
  };
  return repeated(ctx, ctx.constant(kMostDivisions, DType::kInt64), {a, b}, divide).front();
}

struct Pair {
  Value* a;
  Value* b;
};

/// Both arguments, in the shape that they have together.
Pair operands(LoweringContext& ctx) {
  Value* a = ctx.cast(ctx.input(0), DType::kInt64);
  Value* b = ctx.cast(ctx.input(1), DType::kInt64);
  Value* zeros = ctx.op("Mul", {ctx.op("Add", {a, b}), ctx.constant(0, DType::kInt64)});
  return {ctx.op("Add", {a, zeros}), ctx.op("Add", {b, zeros})};
}

/// What a number of the output's dtype is that wraps around.
Value* wrapped(LoweringContext& ctx, Value* x) { return ctx.cast(ctx.cast(x, ctx.output_dtype()), DType::kInt64); }

/// The magnitude of the least number is that number itself; torch goes on with it, and gives negative divisors.
Value* divisor_of(LoweringContext& ctx, const Pair& pair) {
  const auto magnitude = [&](Value* x) { return wrapped(ctx, ctx.op("Abs", {x})); };
  return greatest_divisor(ctx, magnitude(pair.b), magnitude(pair.a));
}

void lower_gcd(LoweringContext& ctx) { ctx.result(divisor_of(ctx, operands(ctx))); }

/// torch multiplies numbers of 8 and 16 bits as those of 32, so that only wider products wrap before their sign is
/// lost.
void lower_lcm(LoweringContext& ctx) {
  const Pair pair = operands(ctx);
  Value* divisor = divisor_of(ctx, pair);
  Value* is_zero = ctx.op("Equal", {divisor, ctx.constant(0, DType::kInt64)});
  Value* safe = ctx.where(is_zero, ctx.constant(1, DType::kInt64), divisor);  // both numbers are 0
  Value* product = ctx.op("Mul", {whole_quotient(ctx, pair.a, safe), pair.b});
  if (bit_width(ctx.output_dtype()) >= 32) product = wrapped(ctx, product);
  ctx.result(ctx.op("Abs", {product}));
}

// ------------------------------------------------------------------------------------------------ floats

struct Format {
  double epsilon;   ///< of 1
  double least;     ///< the least number above 0
  double normal;    ///< the least number with all digits
  double greatest;  ///< the greatest finite number
};

template <typename T>
Format format_of() {
  using Limits = std::numeric_limits<T>;
  return {Limits::epsilon(), Limits::denorm_min(), Limits::min(), Limits::max()};
}

/// A step of 0.6 to 1.2 units in the last place is rounded to one.
Value* next_number(LoweringContext& ctx, Value* x, Value* is_up, const Format& format) {
  const auto number = [&](double value) { return ctx.number_like(value, x); };
  Value* size = ctx.op("Abs", {x});
  Value* step = ctx.op("Mul", {size, number(0.6 * format.epsilon)});
  step = ctx.where(ctx.op("Less", {size, number(2 * format.normal)}), number(format.least), step);
  Value* next = ctx.op("Add", {x, ctx.where(is_up, step, ctx.op("Neg", {step}))});
  Value* is_infinite = ctx.op("Greater", {size, number(format.greatest)});
  Value* back = ctx.where(ctx.op("Greater", {x, number(0)}), number(format.greatest), number(-format.greatest));
  return ctx.where(is_infinite, back, next);
}

/// Halves take their step in float32, and are rounded to it when they are halves again.
Format format_of(DType dtype) {
  if (dtype == DType::kFloat16) return {0x1p-10, 0x1p-24, 0x1p-14, 65504};
  if (dtype == DType::kBFloat16) return {0x1p-7, 0x1p-133, 0x1p-126, 0x1.fep127};
  return dtype == DType::kFloat32 ? format_of<float>() : format_of<double>();
}

void lower_nextafter(LoweringContext& ctx) {
  const Format format = format_of(ctx.output_dtype());
  Value* x = ctx.widened(ctx.cast(ctx.input(0), ctx.output_dtype()));
  Value* target = ctx.widened(ctx.cast(ctx.input(1), ctx.output_dtype()));
  Value* next = next_number(ctx, x, ctx.op("Greater", {target, x}), format);
  Value* is_nan = ctx.op("IsNaN", {ctx.op("Add", {x, target})});  // inf - inf as well
  Value* has_nan = ctx.op("Or", {ctx.op("IsNaN", {x}), ctx.op("IsNaN", {target})});
  Value* nan = ctx.number_like(std::numeric_limits<double>::quiet_NaN(), x);
  next = ctx.where(ctx.op("And", {is_nan, has_nan}), nan, next);
  ctx.result(ctx.where(ctx.op("Equal", {x, target}), target, next));
}

/// x = mantissa 2^exponent with a mantissa between 1/2 and 1; x itself and 0 for 0, inf and NaN.
void lower_frexp(LoweringContext& ctx) {
  using namespace wide;
  Value* x = input(ctx);
  Value* size = ctx.op("Abs", {x});
  Value* is_plain = ctx.op(
      "And", {ctx.op("Greater", {size, number(ctx, 0)}), is_below(ctx, size, std::numeric_limits<double>::infinity())});
  Value* logarithm =
      quotient(ctx, ctx.op("Log", {ctx.where(is_plain, size, number(ctx, 1))}), ctx.op("Log", {number(ctx, 2)}));
  Value* guess = plus(ctx, ctx.op("Floor", {logarithm}), 1);

  // In two steps: 2 to the exponent of a tiny number is infinite.
  Value* half = ctx.op("Floor", {times(ctx, guess, 0.5)});
  Value* scaled = quotient(ctx, x, ctx.op("Pow", {number(ctx, 2), half}));
  scaled = quotient(ctx, scaled, ctx.op("Pow", {number(ctx, 2), difference(ctx, guess, half)}));

  Value* found = ctx.op("Abs", {scaled});
  Value* is_large = ctx.op("GreaterOrEqual", {found, number(ctx, 1)});
  Value* is_small = is_below(ctx, found, 0.5);
  Value* correction = ctx.where(is_large, number(ctx, 1), ctx.where(is_small, number(ctx, -1), number(ctx, 0)));
  Value* factor = ctx.where(is_large, number(ctx, 0.5), ctx.where(is_small, number(ctx, 2), number(ctx, 1)));

  Value* exponent = ctx.where(is_plain, sum(ctx, guess, correction), number(ctx, 0));
  ctx.results({ctx.where(is_plain, product(ctx, scaled, factor), x), exponent});
}

}  // namespace

void populate_number_theory(LoweringTable& table) {
  table.add("aten.gcd.default", lower_gcd);
  table.add("aten.lcm.default", lower_lcm);
  table.add("aten.nextafter.default", lower_nextafter);
  table.add("aten.frexp.Tensor", lower_frexp);
}

}  // namespace exportguard::lowering
