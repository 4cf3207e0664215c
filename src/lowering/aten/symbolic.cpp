#include <algorithm>

#include "exportguard/lowering/table.h"
#include "lowering/complex_parts.h"
#include "lowering/complex_rules.h"
#include "lowering/double_functions.h"
#include "lowering/elementwise.h"
#include "lowering/kernels.h"

/// Python's arithmetic on SymInts, SymFloats and SymBools: tensors of rank 0.
namespace exportguard::lowering {
namespace {

/// What Python computes with: floats if one operand is a float, else integers of any size.
DType number_dtype(LoweringContext& ctx, std::initializer_list<std::size_t> arguments) {
  const bool has_float = std::ranges::any_of(arguments, [&](std::size_t i) { return is_floating(ctx.promoted({i})); });
  return has_float ? DType::kFloat64 : DType::kInt64;
}

Value* number(LoweringContext& ctx, std::size_t i) { return ctx.scalar(i, number_dtype(ctx, {i})); }

struct Numbers {
  Value* a;
  Value* b;
};

Numbers numbers(LoweringContext& ctx) {
  const DType dtype = number_dtype(ctx, {0, 1});
  return {ctx.scalar(0, dtype), ctx.scalar(1, dtype)};
}

void lower_binary(LoweringContext& ctx, std::string_view op) {
  const auto [a, b] = numbers(ctx);
  ctx.result(ctx.op(op, {a, b}));
}

void lower_add(LoweringContext& ctx) { lower_binary(ctx, "Add"); }
void lower_sub(LoweringContext& ctx) { lower_binary(ctx, "Sub"); }
void lower_mul(LoweringContext& ctx) { lower_binary(ctx, "Mul"); }
void lower_max(LoweringContext& ctx) { lower_binary(ctx, "Max"); }
void lower_min(LoweringContext& ctx) { lower_binary(ctx, "Min"); }
void lower_eq(LoweringContext& ctx) { lower_binary(ctx, "Equal"); }
void lower_lt(LoweringContext& ctx) { lower_binary(ctx, "Less"); }
void lower_le(LoweringContext& ctx) { lower_binary(ctx, "LessOrEqual"); }
void lower_gt(LoweringContext& ctx) { lower_binary(ctx, "Greater"); }
void lower_ge(LoweringContext& ctx) { lower_binary(ctx, "GreaterOrEqual"); }

void lower_ne(LoweringContext& ctx) {
  const auto [a, b] = numbers(ctx);
  ctx.result(ctx.op("Not", {ctx.op("Equal", {a, b})}));
}

void lower_truediv(LoweringContext& ctx) {
  ctx.result(ctx.op("Div", {ctx.scalar(0, DType::kFloat64), ctx.scalar(1, DType::kFloat64)}));
}

void lower_floordiv(LoweringContext& ctx) {
  const auto [a, b] = numbers(ctx);
  ctx.result(floor_quotient(ctx, a, b));
}

void lower_mod(LoweringContext& ctx) {
  const auto [a, b] = numbers(ctx);
  ctx.result(floor_remainder(ctx, a, b));
}

/// A negative power of an integer is a float, as the type of the output says.
void lower_pow(LoweringContext& ctx) {
  const DType dtype = is_floating(ctx.output_dtype()) ? DType::kFloat64 : DType::kInt64;
  ctx.result(ctx.op("Pow", {ctx.scalar(0, dtype), ctx.scalar(1, dtype)}));
}

void lower_neg(LoweringContext& ctx) { ctx.result(ctx.op("Neg", {number(ctx, 0)})); }
void lower_pos(LoweringContext& ctx) { ctx.result(number(ctx, 0)); }
void lower_abs(LoweringContext& ctx) { ctx.result(ctx.op("Abs", {number(ctx, 0)})); }

/// `and`, `or` and `xor` of SymBools; bits of SymInts.
void lower_bits(LoweringContext& ctx, std::string_view logical, std::string_view bitwise) {
  const bool is_bool = ctx.output_dtype() == DType::kBool;
  const DType dtype = is_bool ? DType::kBool : DType::kInt64;
  ctx.result(ctx.op(is_bool ? logical : bitwise, {ctx.scalar(0, dtype), ctx.scalar(1, dtype)}));
}

void lower_and(LoweringContext& ctx) { lower_bits(ctx, "And", "BitwiseAnd"); }
void lower_or(LoweringContext& ctx) { lower_bits(ctx, "Or", "BitwiseOr"); }
void lower_xor(LoweringContext& ctx) { lower_bits(ctx, "Xor", "BitwiseXor"); }
void lower_not(LoweringContext& ctx) { ctx.result(ctx.op("Not", {ctx.scalar(0, DType::kBool)})); }

Value* power_of_two(LoweringContext& ctx, std::size_t i) {
  return ctx.op("Pow", {ctx.constant(2, DType::kInt64), ctx.scalar(i, DType::kInt64)});
}

void lower_lshift(LoweringContext& ctx) {
  ctx.result(ctx.op("Mul", {ctx.scalar(0, DType::kInt64), power_of_two(ctx, 1)}));
}

void lower_rshift(LoweringContext& ctx) {
  ctx.result(floor_quotient(ctx, ctx.scalar(0, DType::kInt64), power_of_two(ctx, 1)));
}

/// Rounds a number with the given operator; integers are round.
void lower_rounding(LoweringContext& ctx, std::string_view op) {
  Value* x = number(ctx, 0);
  ctx.result(is_floating(x->dtype()) ? ctx.op(op, {x}) : x);
}

void lower_ceil(LoweringContext& ctx) { lower_rounding(ctx, "Ceil"); }
void lower_floor(LoweringContext& ctx) { lower_rounding(ctx, "Floor"); }

void lower_round(LoweringContext& ctx) {
  const bool has_digits = ctx.has(1) && ctx.integer(1) != 0;
  ctx.require(!has_digits, "round of a symbolic number to decimals has no ONNX operator; round to whole numbers");
  lower_rounding(ctx, "Round");
}

void lower_trunc(LoweringContext& ctx) {
  Value* x = number(ctx, 0);
  ctx.result(is_floating(x->dtype()) ? rounded_to_zero(ctx, x) : x);
}

void lower_cast(LoweringContext& ctx) { ctx.result(ctx.scalar(0, ctx.output_dtype())); }

void lower_choice(LoweringContext& ctx) {
  const DType dtype = ctx.output_dtype();
  ctx.result(ctx.where(ctx.scalar(0, DType::kBool), ctx.scalar(1, dtype), ctx.scalar(2, dtype)));
}

void lower_sum(LoweringContext& ctx) {
  Value* total = nullptr;
  for (const Size& size : ctx.sizes(0)) {
    Value* term = size.value() ? ctx.dim_as_scalar(size.value()) : ctx.constant(*size.number(), DType::kInt64);
    total = total ? ctx.op("Add", {total, term}) : term;
  }
  ctx.result(total ? total : ctx.constant(0, DType::kInt64));
}

/// A function of a float.
void lower_float_function(LoweringContext& ctx, std::string_view op) {
  ctx.result(float_function(ctx, op, ctx.scalar(0, DType::kFloat64)));
}

void lower_sqrt(LoweringContext& ctx) { lower_float_function(ctx, "Sqrt"); }
void lower_exp(LoweringContext& ctx) { lower_float_function(ctx, "Exp"); }
void lower_sin(LoweringContext& ctx) { lower_float_function(ctx, "Sin"); }
void lower_cos(LoweringContext& ctx) { lower_float_function(ctx, "Cos"); }
void lower_tan(LoweringContext& ctx) { lower_float_function(ctx, "Tan"); }
void lower_asin(LoweringContext& ctx) { lower_float_function(ctx, "Asin"); }
void lower_acos(LoweringContext& ctx) { lower_float_function(ctx, "Acos"); }
void lower_atan(LoweringContext& ctx) { lower_float_function(ctx, "Atan"); }
void lower_sinh(LoweringContext& ctx) { lower_float_function(ctx, "Sinh"); }
void lower_cosh(LoweringContext& ctx) { lower_float_function(ctx, "Cosh"); }
void lower_tanh(LoweringContext& ctx) { lower_float_function(ctx, "Tanh"); }

/// The logarithm to a base that is the second argument, or e.
void lower_log(LoweringContext& ctx) {
  Value* logarithm = ctx.op("Log", {ctx.scalar(0, DType::kFloat64)});
  if (!ctx.has(1)) return ctx.result(logarithm);
  ctx.result(ctx.op("Div", {logarithm, ctx.op("Log", {ctx.scalar(1, DType::kFloat64)})}));
}

void lower_log2(LoweringContext& ctx) {
  Value* logarithm = ctx.op("Log", {ctx.scalar(0, DType::kFloat64)});
  ctx.result(ctx.op("Div", {logarithm, ctx.op("Log", {ctx.constant(2, DType::kFloat64)})}));
}

// ------------------------------------------------------------------------------------------------ from tensors

void lower_sym_size(LoweringContext& ctx) { ctx.result(ctx.dim_scalar(ctx.input(0), ctx.integer(1))); }
void lower_sym_numel(LoweringContext& ctx) { ctx.result(ctx.numel_of(ctx.input(0))); }

/// A tensor counts as contiguous here: its stride is the product of the sizes behind the axis.
void lower_sym_stride(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const std::size_t rank = ctx.rank(x);
  Value* stride = ctx.constant(1, DType::kInt64);
  for (auto axis = static_cast<std::size_t>(ctx.axis(1, rank)) + 1; axis < rank; ++axis) {
    stride = ctx.op("Mul", {stride, ctx.dim_scalar(x, static_cast<std::int64_t>(axis))});
  }
  ctx.result(stride);
}

void lower_sym_storage_offset(LoweringContext& ctx) { ctx.result(ctx.constant(0, DType::kInt64)); }

void lower_item(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  ctx.result(ctx.rank(x) == 0 ? x : ctx.reshape(x, {}));
}

/// Assertions tell the exporter what is true; the model goes without them.
void lower_assertion(LoweringContext& ctx) { ctx.results(std::vector<Value*>(ctx.node().output_count(), nullptr)); }

void populate_operators(LoweringTable& table) {
  table.add("operator.add", lower_add);
  table.add("operator.sub", lower_sub);
  table.add("operator.mul", lower_mul);
  table.add("operator.truediv", lower_truediv);
  table.add("operator.floordiv", lower_floordiv);
  table.add("operator.mod", lower_mod);
  table.add("operator.pow", lower_pow);
  table.add("operator.neg", lower_neg);
  table.add("operator.pos", lower_pos);
  table.add({"operator.abs", "builtins.abs"}, lower_abs);

  table.add("operator.eq", lower_eq);
  table.add("operator.ne", lower_ne);
  table.add("operator.lt", lower_lt);
  table.add("operator.le", lower_le);
  table.add("operator.gt", lower_gt);
  table.add("operator.ge", lower_ge);

  table.add("operator.and_", lower_and);
  table.add("operator.or_", lower_or);
  table.add("operator.xor", lower_xor);
  table.add("operator.not_", lower_not);
  table.add("operator.lshift", lower_lshift);
  table.add("operator.rshift", lower_rshift);
}

void populate_functions(LoweringTable& table) {
  table.add("math.ceil", lower_ceil);
  table.add("math.floor", lower_floor);
  table.add("math.trunc", lower_trunc);
  table.add("math.pow", lower_pow);
  table.add("math.log", lower_log);

  table.add({"torch.sym_sqrt", "torch._sym_sqrt", "math.sqrt"}, lower_sqrt);
  table.add({"torch.sym_exp", "torch._sym_exp", "math.exp"}, lower_exp);
  table.add({"torch.sym_sin", "torch._sym_sin", "math.sin"}, lower_sin);
  table.add({"torch.sym_cos", "torch._sym_cos", "math.cos"}, lower_cos);
  table.add({"torch.sym_tan", "torch._sym_tan", "math.tan"}, lower_tan);
  table.add({"torch.sym_asin", "torch._sym_asin", "math.asin"}, lower_asin);
  table.add({"torch.sym_acos", "torch._sym_acos", "math.acos"}, lower_acos);
  table.add({"torch.sym_atan", "torch._sym_atan", "math.atan"}, lower_atan);
  table.add({"torch.sym_sinh", "torch._sym_sinh", "math.sinh"}, lower_sinh);
  table.add({"torch.sym_cosh", "torch._sym_cosh", "math.cosh"}, lower_cosh);
  table.add({"torch.sym_tanh", "torch._sym_tanh", "math.tanh"}, lower_tanh);
  table.add({"torch.sym_log2", "torch._sym_log2", "math.log2"}, lower_log2);

  table.add("builtins.round", lower_round);
  table.add({"torch.sym_max", "builtins.max"}, lower_max);
  table.add({"torch.sym_min", "builtins.min"}, lower_min);
  table.add("torch.sym_int", lower_trunc);
  table.add("torch.sym_float", lower_cast);
  table.add("torch.sym_ite", lower_choice);
  table.add("torch.sym_not", lower_not);
  table.add("torch.sym_sum", lower_sum);
}

/// A check of what the conversion knows leaves nothing behind.
void separate_assertion(ComplexSite&) {}

}  // namespace

void populate_symbolic(LoweringTable& table) {
  populate_operators(table);
  populate_functions(table);
  table.add("aten.sym_size.int", lower_sym_size);
  table.add("aten.sym_numel.default", lower_sym_numel);
  table.add("aten.sym_stride.int", lower_sym_stride);
  table.add("aten.sym_storage_offset.default", lower_sym_storage_offset);
  table.add({"aten.item.default", "aten._local_scalar_dense.default"}, lower_item);
  table.add({"aten.sym_constrain_range.default", "aten.sym_constrain_range_for_size.default",
             "aten._functional_sym_constrain_range.default", "aten._functional_sym_constrain_range_for_size.default",
             "aten._assert_scalar.default", "aten._functional_assert_scalar.default", "aten._assert_async.default",
             "aten._assert_async.msg", "aten.promote_types.default", "aten._functional_assert_async.msg",
             "aten._assert_tensor_metadata.default", "aten._make_dep_token.default", "aten._print.default"},
            lower_assertion);
  table.add_complex({"aten.sym_size.int", "aten.sym_numel.default", "aten.sym_storage_offset.default"}, separate_size);
  table.add_complex({"aten._assert_tensor_metadata.default"}, separate_assertion);
}

}  // namespace exportguard::lowering
