#include <cmath>
#include <numbers>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/kernels.h"
#include "lowering/number_lists.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

/// Dtypes that ONNX draws random numbers in.
DType random_dtype(DType dtype) { return is_floating(dtype) ? dtype : DType::kFloat32; }

/// Dropout runs at every opset, wherever the other random operators do not.
bool has_only_dropout(LoweringContext& ctx) {
  return ctx.opset() > 21 && departs(ctx, Departure::kNoRandomKernelsSince22);
}

/// How many bits a fraction has.
std::int64_t fraction_bits(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 11;
    case DType::kBFloat16:
      return 8;
    case DType::kFloat64:
      return 53;
    default:
      return 24;
  }
}

/// Σ bits 2^-k, where the bits are what Dropout keeps of ones.
Value* uniform_of_bits(LoweringContext& ctx, const std::vector<Size>& sizes, DType dtype) {
  const std::int64_t count = fraction_bits(dtype);
  std::vector<double> weights;
  for (std::int64_t k = 1; k <= count; ++k) weights.push_back(std::ldexp(1.0, static_cast<int>(-k)));
  const DType wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  Size drawn_count = 1;
  for (const Size& size : sizes) drawn_count = multiply(ctx, drawn_count, size);
  Value* ones = ctx.filled({drawn_count, count}, ctx.constant(1, DType::kFloat32));
  Value* half = ctx.constant(0.5, DType::kFloat32);
  Value* bits = ctx.op_many("Dropout", {ones, half, ctx.constant(true, DType::kBool)}, 2).back();
  Value* drawn = ctx.op("MatMul", {ctx.cast(bits, wide), ctx.unsqueeze(doubles(ctx, weights, wide), {1})});
  return ctx.cast(ctx.reshape(drawn, sizes), dtype);
}

/// Uniform in [0, 1), in the given dtype and of the given shape.
Value* uniform(LoweringContext& ctx, const std::vector<Size>& sizes, DType dtype) {
  if (has_only_dropout(ctx)) return uniform_of_bits(ctx, sizes, dtype);
  Value* model = ctx.filled(sizes, ctx.constant(0, dtype));
  return ctx.op("RandomUniformLike", {model}, {{"dtype", static_cast<std::int64_t>(dtype)}});
}

/// Box and Muller: √(-2 log(1 - u)) cos(2πv) for two uniform numbers.
Value* normal_of_uniform(LoweringContext& ctx, const std::vector<Size>& sizes, DType dtype) {
  const DType wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  const auto number = [&](double value) { return ctx.constant(value, wide); };
  Value* rest = ctx.op("Sub", {number(1), uniform(ctx, sizes, wide)});
  Value* radius = ctx.op("Sqrt", {ctx.op("Mul", {ctx.op("Log", {rest}), number(-2)})});
  Value* angle = ctx.op("Mul", {uniform(ctx, sizes, wide), number(2 * std::numbers::pi)});
  return ctx.cast(ctx.op("Mul", {radius, ctx.op("Cos", {angle})}), dtype);
}

/// Normal with mean 0 and deviation 1.
Value* normal(LoweringContext& ctx, const std::vector<Size>& sizes, DType dtype) {
  if (has_only_dropout(ctx)) return normal_of_uniform(ctx, sizes, dtype);
  Value* model = ctx.filled(sizes, ctx.constant(0, dtype));
  return ctx.op("RandomNormalLike", {model}, {{"dtype", static_cast<std::int64_t>(dtype)}});
}

std::vector<Size> sizes_of_input(LoweringContext& ctx, std::size_t i) { return ctx.sizes_of(ctx.input(i)); }

void lower_rand(LoweringContext& ctx) { ctx.result(uniform(ctx, ctx.sizes(0), random_dtype(ctx.output_dtype()))); }
void lower_randn(LoweringContext& ctx) { ctx.result(normal(ctx, ctx.sizes(0), random_dtype(ctx.output_dtype()))); }

void lower_rand_like(LoweringContext& ctx) {
  ctx.result(uniform(ctx, sizes_of_input(ctx, 0), random_dtype(ctx.output_dtype())));
}

void lower_randn_like(LoweringContext& ctx) {
  ctx.result(normal(ctx, sizes_of_input(ctx, 0), random_dtype(ctx.output_dtype())));
}

/// Whole numbers in [low, high).
Value* whole_numbers(LoweringContext& ctx, const std::vector<Size>& sizes, Value* low, Value* high) {
  Value* fraction = uniform(ctx, sizes, low->dtype());
  Value* offset = ctx.op("Floor", {ctx.op("Mul", {fraction, ctx.op("Sub", {high, low})})});
  return ctx.op("Add", {low, offset});
}

void lower_randint(LoweringContext& ctx) {
  Value* zero = ctx.constant(0, DType::kFloat64);
  ctx.result(whole_numbers(ctx, ctx.sizes(1), zero, ctx.scalar(0, DType::kFloat64)));
}

void lower_randint_low(LoweringContext& ctx) {
  Value* low = ctx.scalar(0, DType::kFloat64);
  ctx.result(whole_numbers(ctx, ctx.sizes(2), low, ctx.scalar(1, DType::kFloat64)));
}

void lower_randint_like(LoweringContext& ctx) {
  Value* zero = ctx.constant(0, DType::kFloat64);
  ctx.result(whole_numbers(ctx, sizes_of_input(ctx, 0), zero, ctx.scalar(1, DType::kFloat64)));
}

void lower_randint_like_low(LoweringContext& ctx) {
  Value* low = ctx.scalar(1, DType::kFloat64);
  ctx.result(whole_numbers(ctx, sizes_of_input(ctx, 0), low, ctx.scalar(2, DType::kFloat64)));
}

/// Ones where a uniform draw falls below the probability.
void lower_bernoulli(LoweringContext& ctx) {
  Value* probability = ctx.input(0);
  ctx.result(ctx.op("Less", {uniform(ctx, ctx.sizes_of(probability), probability->dtype()), probability}));
}

void lower_bernoulli_p(LoweringContext& ctx) {
  const DType dtype = DType::kFloat32;
  ctx.result(ctx.op("Less", {uniform(ctx, sizes_of_input(ctx, 0), dtype), ctx.scalar(1, dtype)}));
}

/// from + (to - from) u
void lower_uniform(LoweringContext& ctx) {
  const DType dtype = ctx.output_dtype();
  Value* span = ctx.constant(ctx.number(2) - ctx.number(1), dtype);
  Value* drawn = ctx.op("Mul", {uniform(ctx, sizes_of_input(ctx, 0), dtype), span});
  ctx.result(ctx.op("Add", {drawn, ctx.scalar(1, dtype)}));
}

/// -log(1 - u) / lambda
void lower_exponential(LoweringContext& ctx) {
  const DType dtype = ctx.output_dtype();
  Value* rest = ctx.op("Sub", {ctx.constant(1, dtype), uniform(ctx, sizes_of_input(ctx, 0), dtype)});
  ctx.result(ctx.op("Neg", {ctx.op("Div", {ctx.op("Log", {rest}), ctx.scalar(1, dtype)})}));
}

/// mean + std z, both arguments at `mean` and behind it.
Value* scaled_normal(LoweringContext& ctx, const std::vector<Size>& sizes, std::size_t mean) {
  const DType dtype = ctx.output_dtype();
  Value* spread = ctx.op("Mul", {normal(ctx, sizes, dtype), ctx.scalar(mean + 1, dtype)});
  return ctx.op("Add", {spread, ctx.scalar(mean, dtype)});
}

void lower_normal(LoweringContext& ctx) { ctx.result(scaled_normal(ctx, ctx.output_sizes(), 0)); }
void lower_normal_functional(LoweringContext& ctx) { ctx.result(scaled_normal(ctx, sizes_of_input(ctx, 0), 1)); }

// ------------------------------------------------------------------------------------------------ choices

/// With replacement: how many of the cumulated weights lie at or below a uniform number of their sum.
Value* drawn_again(LoweringContext& ctx, Value* weights, const Size& count) {
  const auto rank = static_cast<std::int64_t>(ctx.rank(weights));
  Value* bounds = ctx.op("CumSum", {weights, ctx.constant(rank - 1, DType::kInt64)});
  Value* sum = ctx.slice(bounds, -1, -1, kEnd);
  std::vector<Size> sizes = ctx.sizes_of(weights);
  sizes.back() = count;
  Value* points = ctx.op("Mul", {uniform(ctx, sizes, weights->dtype()), sum});
  Value* is_passed = ctx.op("LessOrEqual", {ctx.unsqueeze(bounds, {rank - 1}), ctx.unsqueeze(points, {rank})});
  return ctx.reduce("ReduceSum", ctx.cast(is_passed, DType::kInt64), {rank}, false);
}

/// Without replacement: the greatest of the weights, each divided by an exponential number.
Value* drawn_once(LoweringContext& ctx, Value* weights, const Size& count) {
  Value* rest = ctx.op("Sub", {ctx.number_like(1, weights), uniform(ctx, ctx.sizes_of(weights), weights->dtype())});
  Value* waits = ctx.op("Neg", {ctx.op("Log", {rest})});
  return ctx.op_many("TopK", {ctx.op("Div", {weights, waits}), as_dim(ctx, count)}, 2).back();
}

void lower_multinomial(LoweringContext& ctx) {
  Value* weights = ctx.widened(ctx.input(0));
  const Size count = ctx.sizes(1).front();
  ctx.result(ctx.flag(2) ? drawn_again(ctx, weights, count) : drawn_once(ctx, weights, count));
}

void lower_randperm(LoweringContext& ctx) {
  Value* count = ctx.dim(0);
  Value* keys = uniform(ctx, {Size(count)}, DType::kFloat32);
  ctx.result(ctx.op_many("TopK", {keys, count}, 2).back());
}

}  // namespace

void populate_random(LoweringTable& table) {
  table.add({"aten.rand.default", "aten.rand.generator"}, lower_rand);
  table.add({"aten.randn.default", "aten.randn.generator"}, lower_randn);
  table.add({"aten.rand_like.default", "aten.rand_like.generator"}, lower_rand_like);
  table.add({"aten.randn_like.default", "aten.randn_like.generator"}, lower_randn_like);
  table.add({"aten.randint.default", "aten.randint.generator"}, lower_randint);
  table.add({"aten.randint.low", "aten.randint.low_generator"}, lower_randint_low);
  table.add({"aten.randint_like.default", "aten.randint_like.Tensor"}, lower_randint_like);
  table.add("aten.randint_like.low_dtype", lower_randint_like_low);

  table.add("aten.bernoulli.default", lower_bernoulli);
  table.add({"aten.bernoulli.p", "aten.bernoulli.Tensor"}, lower_bernoulli_p);
  table.add("aten.uniform.default", lower_uniform);
  table.add("aten.exponential.default", lower_exponential);
  table.add(
      {"aten.normal.Tensor_float", "aten.normal.float_Tensor", "aten.normal.Tensor_Tensor", "aten.normal.float_float"},
      lower_normal);
  table.add("aten.normal_functional.default", lower_normal_functional);
  table.add("aten.multinomial.default", lower_multinomial);
  table.add("aten.randperm.default", lower_randperm);
}

}  // namespace exportguard::lowering
