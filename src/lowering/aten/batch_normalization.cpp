#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/kernels.h"
#include "lowering/moments.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

/// The arguments that every variant begins with: input, weight, bias, running mean, running variance.
struct BatchNorm {
  Value* x;  ///< float32 or wider
  Value* mean = nullptr;
  Value* variance = nullptr;
  double epsilon = 0;
};

BatchNorm batch_norm_of(LoweringContext& ctx, std::size_t epsilon) {
  Value* x = ctx.widened(ctx.input(0));
  Value* mean = ctx.find_input(3);
  Value* variance = ctx.find_input(4);
  return {x, mean ? ctx.cast(mean, x->dtype()) : nullptr, variance ? ctx.cast(variance, x->dtype()) : nullptr,
          ctx.number(epsilon)};
}

/// torch takes a single axis as well, if it is empty, and gives the input back (Normalization.cpp, 2.11 to 2.13).
bool has_no_channels(LoweringContext& ctx, const BatchNorm& norm) { return ctx.rank(norm.x) < 2; }

Value* channels_filled(LoweringContext& ctx, Value* vector, Value* x, double number) {
  return vector ? ctx.cast(vector, x->dtype()) : ctx.filled({size_of(ctx, x, 1)}, ctx.number_like(number, x));
}

Value* with_running_statistics(LoweringContext& ctx, const BatchNorm& norm) {
  if (has_no_channels(ctx, norm)) return norm.x;
  Value* scale = channels_filled(ctx, ctx.find_input(1), norm.x, 1);
  Value* bias = channels_filled(ctx, ctx.find_input(2), norm.x, 0);
  if (!holds(norm.x->dtype(), norm.epsilon)) {
    Value* inverse = ctx.op("Mul", {inverse_root(ctx, norm.variance, norm.epsilon), scale});
    Value* centered = ctx.op("Sub", {norm.x, per_channel(ctx, norm.mean, ctx.rank(norm.x))});
    return scaled_channels(ctx, centered, inverse, bias);
  }
  return same_dtype_op(ctx, "BatchNormalization", {norm.x, scale, bias, norm.mean, norm.variance},
                       {{"epsilon", norm.epsilon}});
}

std::vector<std::int64_t> axes_but_channels(LoweringContext& ctx, const Value* x) {
  std::vector<std::int64_t> axes = axes_between(0, ctx.rank(x));
  axes.erase(axes.begin() + 1);
  return axes;
}

Value* with_batch_statistics(LoweringContext& ctx, const BatchNorm& norm, const Moments& statistics) {
  return scaled_channels(ctx, standardized(ctx, norm.x, statistics, norm.epsilon), ctx.find_input(1),
                         ctx.find_input(2));
}

/// (1 - momentum) old + momentum seen
Value* moved(LoweringContext& ctx, Value* old, Value* seen, double momentum) {
  Value* kept = ctx.op("Mul", {old, ctx.number_like(1 - momentum, old)});
  return ctx.op("Add", {kept, ctx.op("Mul", {seen, ctx.number_like(momentum, seen)})});
}

/// The running variance takes the unbiased one: n / (n - 1) times the variance of the batch.
Value* unbiased(LoweringContext& ctx, Value* variance, Value* x) {
  Value* count = ctx.cast(ctx.op("Div", {ctx.numel_of(x), ctx.dim_scalar(x, 1)}), x->dtype());
  Value* factor = ctx.op("Div", {count, ctx.op("Sub", {count, ctx.number_like(1, count)})});
  return ctx.op("Mul", {variance, factor});
}

/// In evaluation the saved statistics are empty tensors.
std::vector<Value*> evaluated(LoweringContext& ctx, const BatchNorm& norm) {
  Value* none = ctx.filled({0}, ctx.number_like(0, norm.x));
  return {with_running_statistics(ctx, norm), none, none, norm.mean, norm.variance};
}

/// Outputs of the native variants: result, mean and inverse deviation of the batch, then the new running statistics
/// where the variant gives them back.
std::vector<Value*> trained(LoweringContext& ctx, const BatchNorm& norm, double momentum) {
  if (has_no_channels(ctx, norm)) return evaluated(ctx, norm);
  const auto axes = axes_but_channels(ctx, norm.x);
  const Moments statistics = moments(ctx, norm.x, axes);
  Value* mean = ctx.squeeze(statistics.mean, axes);
  Value* inverse = ctx.squeeze(inverse_root(ctx, statistics.variance, norm.epsilon), axes);
  std::vector<Value*> outputs = {with_batch_statistics(ctx, norm, statistics), mean, inverse};
  if (norm.mean == nullptr || norm.variance == nullptr) return outputs;
  Value* variance = unbiased(ctx, ctx.squeeze(statistics.variance, axes), norm.x);
  outputs.push_back(moved(ctx, norm.mean, mean, momentum));
  outputs.push_back(moved(ctx, norm.variance, variance, momentum));
  return outputs;
}

void give(LoweringContext& ctx, std::vector<Value*> outputs) {
  outputs.resize(ctx.node().output_count(), nullptr);
  ctx.results(outputs);
}

void lower_batch_norm(LoweringContext& ctx) {
  const BatchNorm norm = batch_norm_of(ctx, 7);
  const bool uses_batch = ctx.flag(5) || norm.mean == nullptr;
  if (!uses_batch || has_no_channels(ctx, norm)) return ctx.result(with_running_statistics(ctx, norm));
  ctx.result(with_batch_statistics(ctx, norm, moments(ctx, norm.x, axes_but_channels(ctx, norm.x))));
}

void lower_native_batch_norm(LoweringContext& ctx) {
  const BatchNorm norm = batch_norm_of(ctx, 7);
  give(ctx, ctx.flag(5) || norm.mean == nullptr ? trained(ctx, norm, ctx.number(6)) : evaluated(ctx, norm));
}

void lower_native_batch_norm_no_training(LoweringContext& ctx) { give(ctx, evaluated(ctx, batch_norm_of(ctx, 6))); }

void lower_native_batch_norm_no_stats(LoweringContext& ctx) {
  ctx.require(ctx.flag(3), "batch_norm without running statistics must be in training mode");
  give(ctx, trained(ctx, {ctx.widened(ctx.input(0)), nullptr, nullptr, ctx.number(5)}, 0));
}

/// The fourth output is scratch memory of the backward pass.
void lower_batch_norm_no_update(LoweringContext& ctx) {
  std::vector<Value*> outputs = evaluated(ctx, batch_norm_of(ctx, 6));
  outputs.resize(3);
  outputs.push_back(ctx.filled({0}, ctx.constant(0, DType::kUint8)));
  give(ctx, outputs);
}

/// As above in training mode, with the new running statistics behind the scratch memory.
void lower_batch_norm_with_update(LoweringContext& ctx) {
  std::vector<Value*> outputs = trained(ctx, batch_norm_of(ctx, 6), ctx.number(5));
  outputs.insert(outputs.begin() + 3, ctx.filled({0}, ctx.constant(0, DType::kUint8)));
  give(ctx, outputs);
}

}  // namespace

void populate_batch_normalization(LoweringTable& table) {
  table.add("aten.batch_norm.default", lower_batch_norm);
  table.add({"aten.native_batch_norm.default", "aten._native_batch_norm_legit.default",
             "aten._native_batch_norm_legit_functional.default"},
            lower_native_batch_norm);
  table.add("aten._native_batch_norm_legit.no_stats", lower_native_batch_norm_no_stats);
  table.add("aten._native_batch_norm_legit_no_training.default", lower_native_batch_norm_no_training);
  table.add("aten._batch_norm_no_update.default", lower_batch_norm_no_update);
  table.add({"aten._batch_norm_with_update.default", "aten._batch_norm_with_update_functional.default"},
            lower_batch_norm_with_update);
}

}  // namespace exportguard::lowering
