#include <cstdlib>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/complex_rules.h"
#include "lowering/contraction.h"
#include "lowering/elimination.h"
#include "lowering/kernels.h"
#include "lowering/reductions.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

bool has_gemm(const LoweringContext& ctx, DType dtype) {
  return is_floating(dtype) && has_kernel(ctx.target(), "Gemm", dtype);
}

// ------------------------------------------------------------------------------------------------ linear

/// A matrix of inputs: Gemm reads the weight as it lies, without a Transpose. Above rank 2, MatMul with a transposed
/// weight is the faster one: Gemm would need a Reshape on both sides, with sizes computed at run time, and a runtime
/// transposes a constant weight once when it loads the model. The weight in the file stays the module's own, never a
/// copy.
Value* linear(LoweringContext& ctx, Value* x, Value* weight, Value* bias) {
  const std::size_t weight_rank = ctx.rank(weight);
  const bool is_gemm = ctx.rank(x) == 2 && weight_rank == 2 && has_gemm(ctx, x->dtype());
  if (is_gemm && bias) return ctx.op("Gemm", {x, weight, bias}, {{"transB", 1}});
  if (is_gemm) return ctx.op("Gemm", {x, weight}, {{"transB", 1}});
  Value* product = matmul(ctx, x, weight_rank == 2 ? ctx.swap_axes(weight, 0, 1) : weight);
  return bias ? same_dtype_op(ctx, "Add", {product, bias}) : product;
}

void lower_linear(LoweringContext& ctx) { ctx.result(linear(ctx, ctx.input(0), ctx.input(1), ctx.find_input(2))); }

// ------------------------------------------------------------------------------------------------ products

void lower_matmul(LoweringContext& ctx) { ctx.result(matmul(ctx, ctx.input(0), ctx.input(1))); }

void lower_matmul_dtype(LoweringContext& ctx) {
  const DType dtype = ctx.dtype(2);
  ctx.result(matmul(ctx, ctx.cast(ctx.input(0), dtype), ctx.cast(ctx.input(1), dtype)));
}

Value* outer(LoweringContext& ctx, Value* a, Value* b) {
  const DType dtype = ctx.output_dtype();
  return same_dtype_op(ctx, "Mul", {ctx.unsqueeze(ctx.cast(a, dtype), {1}), ctx.cast(b, dtype)});
}

void lower_outer(LoweringContext& ctx) { ctx.result(outer(ctx, ctx.input(0), ctx.input(1))); }

/// Over the last axis of both; a tensor of rank 0 multiplies every element.
void lower_inner(LoweringContext& ctx) {
  Value* a = ctx.input(0);
  Value* b = ctx.input(1);
  if (ctx.rank(a) == 0 || ctx.rank(b) == 0) return ctx.result(same_dtype_op(ctx, "Mul", {a, b}));
  if (ctx.rank(b) < 2) return ctx.result(matmul(ctx, a, b));
  std::string a_labels;
  std::string b_labels;
  for (std::size_t i = 0; i + 1 < ctx.rank(a); ++i) a_labels += static_cast<char>('A' + i);
  for (std::size_t i = 0; i + 1 < ctx.rank(b); ++i) b_labels += static_cast<char>('a' + i);
  const Labelled product = contract(ctx, {a, a_labels + 'z'}, {b, b_labels + 'z'}, a_labels + b_labels);
  ctx.result(arranged(ctx, product, a_labels + b_labels).value);
}

void lower_vecdot(LoweringContext& ctx) {
  Value* product = same_dtype_op(ctx, "Mul", {ctx.input(0), ctx.input(1)});
  ctx.result(sum(ctx, product, {{ctx.axis(2, ctx.rank(product))}, false}));
}

void lower_multi_dot(LoweringContext& ctx) {
  const std::vector<Value*> matrices = ctx.inputs(0);
  Value* product = matrices.front();
  for (std::size_t i = 1; i < matrices.size(); ++i) product = matmul(ctx, product, matrices[i]);
  ctx.result(product);
}

Value* identity_like(LoweringContext& ctx, Value* x) {
  Value* index = range(ctx, size_of(ctx, x, -1));
  Value* is_diagonal = ctx.op("Equal", {ctx.unsqueeze(index, {1}), index});
  return ctx.expand(ctx.cast(is_diagonal, x->dtype()), ctx.sizes_of(x));
}

/// The n-th power by repeated squaring, of the inverse for a negative n.
void lower_matrix_power(LoweringContext& ctx) {
  std::int64_t exponent = ctx.integer(1);
  Value* square = exponent < 0 ? inverse_of(ctx, ctx.input(0)) : ctx.input(0);
  exponent = std::abs(exponent);
  if (exponent == 0) return ctx.result(identity_like(ctx, square));
  Value* power = nullptr;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) power = power ? matmul(ctx, power, square) : square;
    if (exponent > 1) square = matmul(ctx, square, square);
  }
  ctx.result(power);
}

// ------------------------------------------------------------------------------------------------ beta x + alpha
// product

/// With beta = 0 torch ignores `x`, NaN included.
Value* weighted_sum(LoweringContext& ctx, Value* x, Value* product, std::size_t beta) {
  Value* scaled = times_factor(ctx, product, ctx.number(beta + 1));
  if (ctx.number(beta) == 0) return scaled;
  return same_dtype_op(ctx, "Add", {times_factor(ctx, ctx.cast(x, product->dtype()), ctx.number(beta)), scaled});
}

Value* addmm(LoweringContext& ctx, DType dtype, std::size_t beta) {
  Value* x = ctx.cast(ctx.input(0), dtype);
  Value* a = ctx.cast(ctx.input(1), dtype);
  Value* b = ctx.cast(ctx.input(2), dtype);
  const double factor = ctx.number(beta);
  const bool has_factors = holds(dtype, factor) && holds(dtype, ctx.number(beta + 1));
  if (!has_gemm(ctx, dtype) || !has_factors) return weighted_sum(ctx, x, matmul(ctx, a, b), beta);
  std::vector<Value*> operands = {a, b};
  if (factor != 0) operands.push_back(x);
  return ctx.op("Gemm", operands, {{"alpha", ctx.number(beta + 1)}, {"beta", factor}});
}

void lower_addmm(LoweringContext& ctx) { ctx.result(addmm(ctx, ctx.output_dtype(), 3)); }
void lower_addmm_dtype(LoweringContext& ctx) { ctx.result(addmm(ctx, ctx.dtype(3), 4)); }

void lower_baddbmm(LoweringContext& ctx) {
  ctx.result(weighted_sum(ctx, ctx.input(0), matmul(ctx, ctx.input(1), ctx.input(2)), 3));
}

void lower_baddbmm_dtype(LoweringContext& ctx) {
  const DType dtype = ctx.dtype(3);
  Value* product = matmul(ctx, ctx.cast(ctx.input(1), dtype), ctx.cast(ctx.input(2), dtype));
  ctx.result(weighted_sum(ctx, ctx.input(0), product, 4));
}

/// The products of the batch are summed: one product of matrices with batch and inner axis as one.
void lower_addbmm(LoweringContext& ctx) {
  const Labelled product = contract(ctx, {ctx.input(1), "bij"}, {ctx.input(2), "bjk"}, "ik");
  ctx.result(weighted_sum(ctx, ctx.input(0), product.value, 3));
}

void lower_addr(LoweringContext& ctx) {
  Value* product = outer(ctx, ctx.input(1), ctx.input(2));
  ctx.result(weighted_sum(ctx, ctx.input(0), product, 3));
}

// ------------------------------------------------------------------------------------------------ three operands

/// y[..., o] = sum over i and j of x1[..., i] weight[o, i, j] x2[..., j] + bias[o]
void lower_bilinear(LoweringContext& ctx) {
  Value* x2 = ctx.input(1);
  std::string batch;
  for (std::size_t i = 0; i + 1 < ctx.rank(x2); ++i) batch += static_cast<char>('A' + i);
  const Labelled half = contract(ctx, {ctx.input(0), batch + 'i'}, {ctx.input(2), "oij"}, batch + "oj");
  const Labelled whole = contract(ctx, half, {x2, batch + 'j'}, batch + 'o');
  Value* y = arranged(ctx, whole, batch + 'o').value;
  Value* bias = ctx.find_input(3);
  ctx.result(bias ? same_dtype_op(ctx, "Add", {y, bias}) : y);
}

void lower_tensordot(LoweringContext& ctx) {
  Value* a = ctx.input(0);
  Value* b = ctx.input(1);
  const std::vector<std::int64_t> a_axes = ctx.integers(2);
  const std::vector<std::int64_t> b_axes = ctx.integers(3);

  std::string a_labels;
  std::string b_labels;
  for (std::size_t i = 0; i < ctx.rank(a); ++i) a_labels += static_cast<char>('A' + i);
  for (std::size_t i = 0; i < ctx.rank(b); ++i) b_labels += static_cast<char>('a' + i);

  std::string kept = a_labels + b_labels;
  for (std::size_t i = 0; i < a_axes.size(); ++i) {
    const auto from =
        static_cast<std::size_t>(a_axes[i] < 0 ? a_axes[i] + static_cast<std::int64_t>(a_labels.size()) : a_axes[i]);
    const auto to =
        static_cast<std::size_t>(b_axes[i] < 0 ? b_axes[i] + static_cast<std::int64_t>(b_labels.size()) : b_axes[i]);
    std::erase(kept, a_labels.at(from));
    std::erase(kept, b_labels.at(to));
    b_labels.at(to) = a_labels.at(from);
  }

  ctx.result(arranged(ctx, contract(ctx, {a, a_labels}, {b, b_labels}, kept), kept).value);
}

}  // namespace

void populate_matmul(LoweringTable& table) {
  table.add({"aten.linear.default", "aten.mkldnn_linear.default"}, lower_linear);
  table.add({"aten.matmul.default", "aten.mm.default", "aten.bmm.default", "aten.mv.default", "aten.dot.default",
             "aten.vdot.default", "aten.linalg_matmul.default"},
            lower_matmul);
  table.add({"aten.mm.dtype", "aten.bmm.dtype"}, lower_matmul_dtype);
  table.add({"aten.outer.default", "aten.ger.default"}, lower_outer);
  table.add("aten.inner.default", lower_inner);
  table.add("aten.linalg_vecdot.default", lower_vecdot);
  table.add({"aten.chain_matmul.default", "aten.linalg_multi_dot.default"}, lower_multi_dot);
  table.add({"aten.matrix_power.default", "aten.linalg_matrix_power.default"}, lower_matrix_power);

  table.add("aten.addmm.default", lower_addmm);
  table.add("aten.addmm.dtype", lower_addmm_dtype);
  table.add({"aten.baddbmm.default", "aten.addmv.default"}, lower_baddbmm);
  table.add("aten.baddbmm.dtype", lower_baddbmm_dtype);
  table.add("aten.addbmm.default", lower_addbmm);
  table.add("aten.addr.default", lower_addr);
  table.add("aten.bilinear.default", lower_bilinear);
  table.add("aten.tensordot.default", lower_tensordot);

  table.add_complex(
      {"aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.mv.default", "aten.dot.default"},
      separate_product);
}

}  // namespace exportguard::lowering
