#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <limits>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/complex_rules.h"

namespace exportguard::lowering {
namespace {

void lower_where(LoweringContext& ctx) {
  const DType dtype = ctx.output_dtype();
  ctx.result(ctx.where(ctx.scalar(0, DType::kBool), ctx.scalar(1, dtype), ctx.scalar(2, dtype)));
}

void lower_masked_fill(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  ctx.result(ctx.where(ctx.scalar(1, DType::kBool), ctx.scalar(2, x->dtype()), x));
}

/// Where the condition holds: one index tensor for each axis.
void lower_where_indices(LoweringContext& ctx) {
  Value* positions = ctx.op("NonZero", {ctx.cast(ctx.input(0), DType::kBool)});
  std::vector<Value*> rows;
  for (std::size_t axis = 0; axis < ctx.node().output_count(); ++axis) {
    rows.push_back(ctx.gather(positions, ctx.constant(static_cast<std::int64_t>(axis), DType::kInt64), 0));
  }
  ctx.results(rows);
}

double largest(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return std::numeric_limits<c10::Half>::max();
    case DType::kBFloat16:
      return std::numeric_limits<c10::BFloat16>::max();
    case DType::kFloat32:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

void lower_nan_to_num(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  if (!is_floating(x->dtype())) return ctx.result(x);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double limit = largest(x->dtype());
  const auto replaced = [&](Value* value, double from, std::size_t i, double fallback) {
    Value* matches = ctx.op("Equal", {x, ctx.number_like(from, x)});
    return ctx.where(matches, ctx.number_like(ctx.number_or(i, fallback), x), value);
  };
  Value* finite = replaced(replaced(x, kInfinity, 2, limit), -kInfinity, 3, -limit);
  ctx.result(ctx.where(ctx.op("IsNaN", {x}), ctx.number_like(ctx.number_or(1, 0), x), finite));
}

}  // namespace

void populate_selection(LoweringTable& table) {
  table.add({"aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar"}, lower_where);
  table.add("aten.where.default", lower_where_indices);
  table.add({"aten.masked_fill.Scalar", "aten.masked_fill.Tensor"}, lower_masked_fill);
  table.add("aten.nan_to_num.default", lower_nan_to_num);
  table.add_complex({"aten.where.self"}, separate_sum);
}

}  // namespace exportguard::lowering
