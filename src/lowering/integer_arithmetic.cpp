#include "lowering/integer_arithmetic.h"

#include <algorithm>

#include "lowering/axes.h"
#include "lowering/iteration.h"
#include "lowering/kernels.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

Value* int64(LoweringContext& ctx, std::int64_t number) { return ctx.constant(number, DType::kInt64); }

bool goes_through_doubles(const LoweringContext& ctx) { return departs(ctx, Departure::kInt64ThroughDoubles); }

Value* chosen(LoweringContext& ctx, std::string_view op, std::string_view comparison, Value* a, Value* b) {
  if (a->dtype() == DType::kBool) return ctx.op(op == "Max" ? "Or" : "And", {a, b});
  const bool is_exact = kernel_dtype(ctx, op, a->dtype()) != DType::kInt64 || !goes_through_doubles(ctx);
  if (is_exact) return kernel_op(ctx, op, {a, b});
  a = ctx.cast(a, DType::kInt64);
  b = ctx.cast(b, DType::kInt64);
  return ctx.where(ctx.op(comparison, {a, b}), a, b);
}

bool is_reduced(const ReducedAxes& over, std::int64_t axis) {
  return over.axes.empty() || std::ranges::find(over.axes, axis) != over.axes.end();
}

/// A tensor whose last axis has the elements that one result is made of.
struct Gathered {
  Value* value;
  Size count;
  std::vector<std::int64_t> axes;  ///< of the tensor that are gone
};

Gathered gathered(LoweringContext& ctx, Value* x, const ReducedAxes& over) {
  Gathered made{x, 1, {}};
  std::vector<std::int64_t> order;
  std::vector<Size> sizes;
  const auto rank = static_cast<std::int64_t>(ctx.rank(x));

  for (std::int64_t axis = 0; axis < rank; ++axis) {
    if (is_reduced(over, axis)) {
      made.axes.push_back(axis);
      made.count = multiply(ctx, made.count, size_of(ctx, x, axis));
    } else {
      order.push_back(axis);
      sizes.push_back(size_of(ctx, x, axis));
    }
  }

  order.insert(order.end(), made.axes.begin(), made.axes.end());
  sizes.push_back(made.count);
  made.value = ctx.transpose(x, order);
  if (made.axes.size() != 1) made.value = ctx.reshape(made.value, sizes);
  return made;
}

Value* with_axes(LoweringContext& ctx, Value* reduced, const Gathered& from, const ReducedAxes& over) {
  return over.keepdim && !from.axes.empty() ? ctx.unsqueeze(reduced, from.axes) : reduced;
}

ir::Type without_last_axis(const ir::Type& type) {
  ir::Type reduced = type;
  if (reduced.shape) reduced.shape->pop_back();
  return reduced;
}

// ------------------------------------------------------------------------------------------------ powers

Value* is_odd(LoweringContext& ctx, Value* x) {
  Value* half = ctx.op("Div", {x, int64(ctx, 2)});
  return ctx.op("Not", {ctx.op("Equal", {ctx.op("Mul", {half, int64(ctx, 2)}), x})});
}

/// 1 / base to the power of -exponent, rounded to zero: only 1 and -1 leave something.
Value* power_of_negative(LoweringContext& ctx, Value* base, Value* exponent) {
  Value* sign = ctx.where(is_odd(ctx, exponent), int64(ctx, -1), int64(ctx, 1));
  Value* of_minus_one = ctx.where(ctx.op("Equal", {base, int64(ctx, -1)}), sign, int64(ctx, 0));
  return ctx.where(ctx.op("Equal", {base, int64(ctx, 1)}), int64(ctx, 1), of_minus_one);
}

/// The exponent is a number in the file.
Value* power_of_constant(LoweringContext& ctx, Value* base, std::int64_t exponent) {
  Value* power = nullptr;
  for (Value* square = base; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) power = power ? ctx.op("Mul", {power, square}) : square;
    if (exponent > 1) square = ctx.op("Mul", {square, square});
  }
  return power ? power : ctx.op("Add", {ctx.op("Mul", {base, int64(ctx, 0)}), int64(ctx, 1)});
}

}  // namespace

Value* larger_of(LoweringContext& ctx, Value* a, Value* b) { return chosen(ctx, "Max", "Greater", a, b); }
Value* smaller_of(LoweringContext& ctx, Value* a, Value* b) { return chosen(ctx, "Min", "Less", a, b); }

Value* integer_sum(LoweringContext& ctx, Value* x, const ReducedAxes& over) {
  if (ctx.rank(x) == 0) return x;
  if (!goes_through_doubles(ctx)) return ctx.reduce("ReduceSum", x, over.axes, over.keepdim);
  const Gathered from = gathered(ctx, x, over);
  // A column, not a vector: some runtimes stop at a matrix without rows and a vector.
  Value* column = ctx.op("MatMul", {from.value, ctx.filled({from.count, 1}, int64(ctx, 1))});
  Value* sum = ctx.squeeze(column, {static_cast<std::int64_t>(ctx.rank(from.value)) - 1});
  sum->set_type(without_last_axis(from.value->type()));
  return with_axes(ctx, sum, from, over);
}

Value* integer_product(LoweringContext& ctx, Value* x, const ReducedAxes& over) {
  if (ctx.rank(x) == 0) return x;
  if (!goes_through_doubles(ctx)) return ctx.reduce("ReduceProd", x, over.axes, over.keepdim);
  const Gathered from = gathered(ctx, x, over);
  std::vector<Size> sizes = ctx.sizes_of(from.value);
  sizes.pop_back();
  Value* ones = ctx.filled(sizes, int64(ctx, 1));
  ones->set_type(without_last_axis(from.value->type()));
  const auto last = static_cast<std::int64_t>(sizes.size());
  const auto step = [&](Value* k, const std::vector<Value*>& state) {
    Value* product = ctx.op("Mul", {state[0], ctx.gather(from.value, k, last)});
    product->set_type(ones->type());
    return Step{{product}};
  };
  return with_axes(ctx, repeated(ctx, as_scalar(ctx, from.count), {ones}, step).front(), from, over);
}

Value* integer_power(LoweringContext& ctx, Value* base, Value* exponent) {
  const ir::Tensor* known = ctx.find_constant(exponent);
  if (known != nullptr && known->numel() == 1 && ctx.rank(exponent) == 0 && known->to_ints().front() >= 0) {
    return power_of_constant(ctx, base, known->to_ints().front());
  }

  const ir::Type type = ctx.output_type();
  const auto typed = [&](Value* value) {
    value->set_type(ir::Type::tensor(DType::kInt64, type.shape));
    return value;
  };
  Value* zeros = ctx.op("Mul", {ctx.op("Add", {base, exponent}), int64(ctx, 0)});
  Value* bases = typed(ctx.op("Add", {base, zeros}));
  Value* exponents = typed(ctx.op("Add", {exponent, zeros}));

  const auto step = [&](Value*, const std::vector<Value*>& state) {
    Value* power = ctx.where(is_odd(ctx, state[2]), ctx.op("Mul", {state[0], state[1]}), state[0]);
    Value* rest = typed(ctx.op("Div", {state[2], int64(ctx, 2)}));
    Value* square = typed(ctx.op("Mul", {state[1], state[1]}));
    return Step{{typed(power), square, rest}, any_true(ctx, ctx.op("Greater", {rest, int64(ctx, 0)}), {})};
  };

  Value* ones = typed(ctx.op("Add", {zeros, int64(ctx, 1)}));
  Value* power = repeated(ctx, int64(ctx, 63), {ones, bases, exponents}, step).front();
  Value* is_negative = ctx.op("Less", {exponents, int64(ctx, 0)});
  return ctx.where(is_negative, power_of_negative(ctx, bases, exponents), power);
}

}  // namespace exportguard::lowering
