#include "lowering/elementwise.h"

#include <algorithm>

#include "lowering/kernels.h"

namespace exportguard::lowering {
namespace {

Value* zero_like(LoweringContext& ctx, const Value* x) { return ctx.number_like(0, x); }

Value* is_negative(LoweringContext& ctx, Value* x) { return kernel_op(ctx, "Less", {x, zero_like(ctx, x)}); }

/// The remainder is not zero and its sign is not the divisor's.
Value* has_wrong_sign(LoweringContext& ctx, Value* remainder, Value* divisor) {
  Value* is_zero = kernel_op(ctx, "Equal", {remainder, zero_like(ctx, remainder)});
  Value* differs = ctx.op("Xor", {is_negative(ctx, remainder), is_negative(ctx, divisor)});
  return ctx.op("And", {ctx.op("Not", {is_zero}), differs});
}

/// The float quotient of torch: exact division of what the remainder leaves, so that 1 // 0.1 is 9.
Value* float_floor_quotient(LoweringContext& ctx, Value* a, Value* b) {
  Value* remainder = truncated_remainder(ctx, a, b);
  Value* whole = ctx.op("Div", {ctx.op("Sub", {a, remainder}), b});
  Value* step = ctx.cast(has_wrong_sign(ctx, remainder, b), a->dtype());
  Value* nearest = ctx.op("Round", {ctx.op("Sub", {whole, step})});

  // A quotient that rounds to zero has the sign of the exact one, which is the answer itself over zero.
  const ir::Tensor* known = ctx.find_constant(b);
  const bool is_never_zero = known != nullptr && known->numel() == 1 && known->to_doubles().front() != 0;
  Value* kept =
      is_never_zero ? zero_like(ctx, b) : ctx.cast(kernel_op(ctx, "Equal", {b, zero_like(ctx, b)}), b->dtype());
  Value* signed_zero = ctx.op("Mul", {ctx.op("Div", {a, b}), kept});
  Value* is_plain = kernel_op(ctx, "Greater", {ctx.op("Abs", {nearest}), zero_like(ctx, nearest)});
  return ctx.where(is_plain, nearest, signed_zero);
}

/// Integers of 32 and 64 bits with a sign, which are not divided in a wider dtype, by what may be -1.
bool may_overflow(LoweringContext& ctx, const Value* a, const Value* b) {
  if (a->dtype() != DType::kInt32 && a->dtype() != DType::kInt64) return false;
  if (ctx.find_elements(b) != nullptr && ctx.find_constant(b) == nullptr) return false;  // sizes
  const ir::Tensor* known = ctx.find_constant(b);
  return known == nullptr || std::ranges::count(known->to_ints(), -1) > 0;
}

Value* is_minus_one(LoweringContext& ctx, Value* b) { return ctx.op("Equal", {b, ctx.number_like(-1, b)}); }

/// A divisor that leaves what -1 does, nothing, without a quotient that is no number of the dtype.
Value* divisor_without_overflow(LoweringContext& ctx, Value* a, Value* b) {
  return may_overflow(ctx, a, b) ? ctx.where(is_minus_one(ctx, b), ctx.number_like(1, b), b) : b;
}

bool is_positive_constant(LoweringContext& ctx, const Value* x) {
  const ir::Tensor* number = ctx.find_constant(x);
  return number != nullptr && number->numel() == 1 && number->to_ints().front() > 0;
}

}  // namespace

Value* rounded_once(LoweringContext& ctx, Value* x) {
  return x->dtype() == DType::kBFloat16 ? ctx.cast(x, DType::kFloat32) : x;
}

Value* sign_bit(LoweringContext& ctx, Value* x) {
  const bool is_never = is_unsigned(x->dtype()) || x->dtype() == DType::kBool;
  if (is_never) return ctx.op("Not", {ctx.op("Equal", {x, x})});
  if (!is_floating(x->dtype())) return is_negative(ctx, x);
  Value* is_zero = kernel_op(ctx, "Equal", {x, zero_like(ctx, x)});  // 1 / -0.0 is -inf
  return is_negative(ctx, ctx.where(is_zero, ctx.op("Reciprocal", {x}), x));
}

Value* with_sign(LoweringContext& ctx, Value* is_below, Value* magnitude) {
  Value* sign = ctx.where(is_below, ctx.number_like(-1, magnitude), ctx.number_like(1, magnitude));
  return ctx.op("Mul", {magnitude, sign});
}

Value* rounded_to_zero(LoweringContext& ctx, Value* x) {
  Value* is_positive = kernel_op(ctx, "Greater", {x, zero_like(ctx, x)});
  Value* above = ctx.op("Floor", {x});
  return ctx.where(is_positive, above, ctx.op("Ceil", {x}));  // some runtimes choose 0.0 for a -0.0 that is first
}

Value* whole_quotient(LoweringContext& ctx, Value* a, Value* b) {
  if (!may_overflow(ctx, a, b)) return ctx.op("Div", {a, b});
  Value* negated = ctx.op("Sub", {zero_like(ctx, a), a});
  return ctx.where(is_minus_one(ctx, b), negated, ctx.op("Div", {a, divisor_without_overflow(ctx, a, b)}));
}

Value* truncated_remainder(LoweringContext& ctx, Value* a, Value* b) {
  if (is_floating(a->dtype())) return ctx.op("Mod", {a, b}, {{"fmod", 1}});
  b = divisor_without_overflow(ctx, a, b);
  Value* whole = ctx.op("Mul", {ctx.op("Div", {a, b}), b});  // fmod of integers goes through doubles
  return ctx.op("Sub", {a, whole});
}

Value* floor_remainder(LoweringContext& ctx, Value* a, Value* b) {
  if (!is_floating(a->dtype())) return ctx.op("Mod", {a, divisor_without_overflow(ctx, a, b)});
  Value* remainder = truncated_remainder(ctx, a, b);
  return ctx.where(has_wrong_sign(ctx, remainder, b), ctx.op("Add", {remainder, b}), remainder);
}

Value* floor_quotient(LoweringContext& ctx, Value* a, Value* b) {
  if (is_floating(a->dtype())) return float_floor_quotient(ctx, a, b);
  if (is_unsigned(a->dtype())) return ctx.op("Div", {a, b});
  // Not (a - a % b) / b: the difference may be below the least number.
  Value* rounded = whole_quotient(ctx, a, b);
  Value* whole = ctx.op("Mul", {rounded, b});
  Value* is_above =
      is_positive_constant(ctx, b) ? ctx.op("Greater", {whole, a}) : has_wrong_sign(ctx, ctx.op("Sub", {a, whole}), b);
  return ctx.op("Sub", {rounded, ctx.cast(is_above, a->dtype())});
}

Value* log_one_plus(LoweringContext& ctx, Value* x) {
  Value* one = ctx.number_like(1, x);
  Value* sum = ctx.op("Add", {x, one});
  Value* taken = ctx.op("Sub", {sum, one});  // what of x is in the sum; the quotient puts the rest back
  Value* logarithm = ctx.op("Log", {sum});
  Value* corrected = ctx.op("Mul", {logarithm, ctx.op("Div", {x, taken})});
  Value* is_counted = kernel_op(ctx, "Greater", {ctx.op("Abs", {taken}), zero_like(ctx, x)});
  Value* is_large = kernel_op(ctx, "Greater", {x, one});
  return ctx.where(is_counted, ctx.where(is_large, logarithm, corrected), x);
}

Value* exp_minus_one(LoweringContext& ctx, Value* x) {
  // exp(x) - 1 = tanh(x / 2) (exp(x) + 1), without the cancellation
  Value* slope = ctx.op("Tanh", {ctx.op("Mul", {x, ctx.number_like(0.5, x)})});
  return ctx.op("Mul", {slope, ctx.op("Add", {ctx.op("Exp", {x}), ctx.number_like(1, x)})});
}

Value* log_of_sum(LoweringContext& ctx, Value* a, Value* b) {
  // equal operands, infinite ones among them, differ by zero
  Value* gap = ctx.where(ctx.op("Equal", {a, b}), zero_like(ctx, a), ctx.op("Abs", {ctx.op("Sub", {a, b})}));
  return ctx.op("Add", {ctx.op("Max", {a, b}), log_one_plus(ctx, ctx.op("Exp", {ctx.op("Neg", {gap})}))});
}

Value* as_bool(LoweringContext& ctx, Value* x) { return ctx.cast(x, DType::kBool); }

}  // namespace exportguard::lowering
