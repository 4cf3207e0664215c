#include <limits>

#include "exportguard/lowering/table.h"
#include "lowering/complex_arithmetic.h"
#include "lowering/kernels.h"
#include "lowering/reductions.h"

namespace exportguard::lowering {
namespace {

Value* compare(LoweringContext& ctx, std::string_view op) {
  const DType dtype = kernel_dtype(ctx, op, ctx.promoted({0, 1}));
  return kernel_op(ctx, op, {ctx.scalar(0, dtype), ctx.scalar(1, dtype)});
}

void lower_eq(LoweringContext& ctx) { ctx.result(compare(ctx, "Equal")); }
void lower_ne(LoweringContext& ctx) { ctx.result(ctx.op("Not", {compare(ctx, "Equal")})); }
void lower_lt(LoweringContext& ctx) { ctx.result(compare(ctx, "Less")); }
void lower_le(LoweringContext& ctx) { ctx.result(compare(ctx, "LessOrEqual")); }
void lower_gt(LoweringContext& ctx) { ctx.result(compare(ctx, "Greater")); }
void lower_ge(LoweringContext& ctx) { ctx.result(compare(ctx, "GreaterOrEqual")); }

/// Equal shapes and elements: bool.
void lower_equal(LoweringContext& ctx) {
  if (ctx.shape(ctx.input(0)) != ctx.shape(ctx.input(1))) return ctx.result(ctx.constant(false, DType::kBool));
  ctx.result(all_true(ctx, compare(ctx, "Equal"), {}));
}

/// |a - b| <= atol + |rtol b|, or equal (infinities), or both NaN where that counts.
Value* close(LoweringContext& ctx) {
  const DType promoted = ctx.promoted({0, 1});
  const bool is_narrow = is_floating(promoted) && promoted != DType::kFloat64;
  const DType dtype = is_narrow ? DType::kFloat32 : DType::kFloat64;
  Value* a = ctx.scalar(0, dtype);
  Value* b = ctx.scalar(1, dtype);
  Value* slack = ctx.op("Abs", {ctx.op("Mul", {b, ctx.constant(ctx.number(2), dtype)})});
  Value* allowed = ctx.op("Add", {slack, ctx.constant(ctx.number(3), dtype)});
  Value* gap = ctx.op("Abs", {ctx.op("Sub", {a, b})});
  Value* is_finite = ctx.op("Less", {gap, ctx.constant(std::numeric_limits<double>::infinity(), dtype)});
  Value* is_near = ctx.op("And", {is_finite, ctx.op("LessOrEqual", {gap, allowed})});
  Value* is_close = ctx.op("Or", {ctx.op("Equal", {a, b}), is_near});
  if (!ctx.flag(4)) return is_close;
  Value* both_nan = ctx.op("And", {ctx.op("IsNaN", {a}), ctx.op("IsNaN", {b})});
  return ctx.op("Or", {is_close, both_nan});
}

void lower_isclose(LoweringContext& ctx) { ctx.result(close(ctx)); }
void lower_allclose(LoweringContext& ctx) { ctx.result(all_true(ctx, close(ctx), {})); }

Item or_zero(const std::optional<Item>& part) { return part ? *part : Item(literal(std::int64_t{0})); }

void compare(ComplexSite& site, std::string_view question, std::string_view together) {
  Number a = site.number(0);
  Number b = site.number(1);
  if (std::get_if<Value*>(&a.first) == nullptr) std::swap(a, b);
  const ir::Type type = site.node().output().type();
  const auto ask = [&](Item x, Item y) {
    if (std::get_if<Value*>(&x) == nullptr) std::swap(x, y);
    const bool is_tensor = std::get_if<Value*>(&y) != nullptr;
    return site.emit(std::string(question) + (is_tensor ? ".Tensor" : ".Scalar"), {std::move(x), std::move(y)}, type);
  };
  site.give_real(site.emit(together, {ask(a.first, b.first), ask(or_zero(a.second), or_zero(b.second))}, type));
}

void separate_eq(ComplexSite& site) { compare(site, "eq", "logical_and.default"); }
void separate_ne(ComplexSite& site) { compare(site, "ne", "logical_or.default"); }

}  // namespace

void populate_comparison(LoweringTable& table) {
  table.add({"aten.eq.Tensor", "aten.eq.Scalar"}, lower_eq);
  table.add({"aten.ne.Tensor", "aten.ne.Scalar", "aten.not_equal.Tensor", "aten.not_equal.Scalar"}, lower_ne);
  table.add({"aten.lt.Tensor", "aten.lt.Scalar", "aten.less.Tensor", "aten.less.Scalar"}, lower_lt);
  table.add({"aten.le.Tensor", "aten.le.Scalar", "aten.less_equal.Tensor", "aten.less_equal.Scalar"}, lower_le);
  table.add({"aten.gt.Tensor", "aten.gt.Scalar", "aten.greater.Tensor", "aten.greater.Scalar"}, lower_gt);
  table.add({"aten.ge.Tensor", "aten.ge.Scalar", "aten.greater_equal.Tensor", "aten.greater_equal.Scalar"}, lower_ge);
  table.add("aten.equal.default", lower_equal);
  table.add("aten.isclose.default", lower_isclose);
  table.add("aten.allclose.default", lower_allclose);
  table.add_complex({"aten.eq.Tensor", "aten.eq.Scalar"}, separate_eq);
  table.add_complex({"aten.ne.Tensor", "aten.ne.Scalar"}, separate_ne);
}

}  // namespace exportguard::lowering
