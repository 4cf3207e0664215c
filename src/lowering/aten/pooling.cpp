#include <algorithm>
#include <array>
#include <limits>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/kernels.h"
#include "lowering/nan_in_windows.h"
#include "lowering/scatter.h"
#include "lowering/size_arithmetic.h"
#include "lowering/windows.h"

namespace exportguard::lowering {
namespace {

using Numbers = std::vector<std::int64_t>;

/// A place behind every element, which ReduceMin compares exactly even where it goes through doubles.
constexpr std::int64_t kNowhere = std::int64_t{1} << 50;

Numbers spread(Numbers numbers, std::size_t count) {
  if (numbers.size() == 1) numbers.resize(count, numbers.front());
  return numbers;
}

struct Pooling {
  Numbers kernel;
  Numbers stride;
  Numbers pads;
};

/// Kernel, stride and padding at the arguments 1 to 3; without strides, windows lie side by side.
Pooling pooling_of(LoweringContext& ctx, std::size_t count) {
  const Numbers kernel = spread(ctx.integers(1), count);
  Numbers stride = ctx.integers(2);
  stride = stride.empty() ? kernel : spread(stride, count);
  Numbers pads = spread(ctx.integers(3), count);
  pads.insert(pads.end(), pads.begin(), pads.end());
  return {kernel, stride, pads};
}

/// The sizes of the result's spatial axes.
std::vector<Size> result_counts(LoweringContext& ctx, const Pooling& pooling) {
  const std::vector<Size> sizes = ctx.output_sizes();
  return {sizes.end() - static_cast<std::ptrdiff_t>(pooling.kernel.size()), sizes.end()};
}

/// The input with a batch; torch takes one without it, too.
struct Batched {
  Value* value;
  bool is_added;
};

Batched batched(LoweringContext& ctx, std::size_t spatial) {
  Value* x = ctx.input(0);
  const bool is_added = ctx.rank(x) == spatial + 1;
  return {is_added ? ctx.unsqueeze(x, {0}) : x, is_added};
}

Value* unbatched(LoweringContext& ctx, Value* y, const Batched& input) {
  return input.is_added ? ctx.squeeze(y, {0}) : y;
}

// ------------------------------------------------------------------------------------------------ largest

/// A target that merges a Pad with zeros into a MaxPool, whose own padding is lower than any number, keeps them apart
/// where the MaxPool says that it has no padding at all.
bool says_valid(LoweringContext& ctx, const Value* x, const Pooling& pooling, bool is_ceil) {
  if (!departs(ctx, Departure::kPadMergedIntoMaxPool)) return false;
  const bool is_padded = x->producer() != nullptr && x->producer()->op() == "Pad";
  const bool has_pads = std::ranges::any_of(pooling.pads, [](std::int64_t pad) { return pad != 0; });
  return is_padded && !has_pads && !is_ceil;
}

/// Values and, where asked for, their positions in the whole tensor.
std::vector<Value*> max_pool(LoweringContext& ctx, Value* x, std::size_t spatial, std::size_t outputs) {
  const Pooling pooling = pooling_of(ctx, spatial);
  std::vector<ir::NamedAttribute> attributes;
  attributes.emplace_back("kernel_shape", pooling.kernel);
  attributes.emplace_back("strides", pooling.stride);
  if (says_valid(ctx, x, pooling, ctx.flag(5))) {
    attributes.emplace_back("auto_pad", std::string("VALID"));
  } else {
    attributes.emplace_back("pads", pooling.pads);
  }
  attributes.emplace_back("dilations", spread(ctx.integers(4), spatial));
  attributes.emplace_back("ceil_mode", ctx.integer(5));
  return ctx.op_many("MaxPool", {ctx.cast(x, kernel_dtype(ctx, "MaxPool", x->dtype()))}, outputs,
                     std::move(attributes));
}

/// Whether numbers may be minus infinity although the model computes with finite ones: inputs, and what is chosen among
/// them and constants, but not what layers make of them.
bool may_be_lowest(const Value* x, int& visits) {
  const ir::Node* node = x->producer();
  if (node == nullptr || --visits < 0) return true;
  constexpr std::array kFinite = {"Conv",
                                  "ConvTranspose",
                                  "MatMul",
                                  "Gemm",
                                  "BatchNormalization",
                                  "LayerNormalization",
                                  "InstanceNormalization",
                                  "GroupNormalization",
                                  "RMSNormalization",
                                  "AveragePool",
                                  "Relu",
                                  "Sigmoid",
                                  "HardSigmoid",
                                  "Softmax",
                                  "Abs",
                                  "Exp",
                                  "Sqrt",
                                  "Tanh",
                                  "Elu",
                                  "Selu",
                                  "Gelu",
                                  "LeakyRelu",
                                  "PRelu",
                                  "HardSwish",
                                  "Softplus",
                                  "Resize"};
  if (std::ranges::any_of(kFinite, [&](const char* op) { return node->is("", op); })) return false;
  constexpr std::array kOfOperands = {"Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose",
                                      "Slice",    "Add",     "Mul",       "Concat",  "MaxPool", "Cast"};
  if (std::ranges::none_of(kOfOperands, [&](const char* op) { return node->is("", op); })) return true;
  const bool takes_all = node->is("", "Add") || node->is("", "Mul") || node->is("", "Concat");
  for (std::size_t i = 0; i < (takes_all ? node->input_count() : 1); ++i) {
    if (may_be_lowest(&node->input(i), visits)) return true;
  }
  return false;
}

/// `found`, with minus infinity where a window of `x` has nothing else.
Value* with_lowest(LoweringContext& ctx, Value* x, Value* found, std::size_t spatial) {
  int visits = 64;
  if (!is_floating(x->dtype()) || !departs(ctx, Departure::kLowestInMaxPool) || !may_be_lowest(x, visits)) return found;
  Value* infinity = ctx.number_like(-std::numeric_limits<double>::infinity(), x);
  Value* flags = ctx.cast(kernel_op(ctx, "Greater", {x, infinity}), DType::kUint8);
  Value* has_other = ctx.cast(max_pool(ctx, flags, spatial, 1).front(), DType::kBool);
  return ctx.where(has_other, found, ctx.number_like(-std::numeric_limits<double>::infinity(), found));
}

/// `found` where the window of `x` has no NaN. ONNX leaves open what a MaxPool makes of NaN.
Value* with_nan(LoweringContext& ctx, Value* x, Value* found, std::size_t spatial) {
  if (!is_floating(x->dtype())) return found;
  Value* flags = ctx.cast(kernel_op(ctx, "IsNaN", {x}), DType::kUint8);
  Value* has_nan = ctx.cast(max_pool(ctx, flags, spatial, 1).front(), DType::kBool);
  return ctx.where(has_nan, ctx.number_like(std::numeric_limits<double>::quiet_NaN(), found), found);
}

/// What an int64 has no MaxPool for, and no float all digits: the greatest of each window, and where it stands first.
PooledMaxima max_of_windows(LoweringContext& ctx, Value* x, std::size_t spatial) {
  const Pooling pooling = pooling_of(ctx, spatial);
  Numbers margins = pooling.pads;
  for (std::size_t i = 0; i < spatial; ++i) margins[spatial + i] += ctx.flag(5) ? pooling.stride[i] - 1 : 0;
  const WindowGrid grid = {{pooling.kernel.begin(), pooling.kernel.end()},
                           pooling.stride,
                           spread(ctx.integers(4), spatial),
                           Numbers(2 * spatial, 0)};
  const std::vector<Size> counts = result_counts(ctx, pooling);
  const auto windows = [&](Value* values, std::int64_t filler) {
    return windows_of(ctx, with_margins(ctx, values, margins, ctx.constant(filler, DType::kInt64)), grid, counts);
  };

  std::vector<Size> plane = {1, 1};
  for (std::size_t i = 0; i < spatial; ++i) plane.push_back(size_of(ctx, x, static_cast<std::int64_t>(i) + 2));
  Value* places = windows(ctx.reshape(range(ctx, merged_size(ctx, x, 2, 2 + spatial)), plane), kNowhere);
  Value* values = windows(x, std::numeric_limits<std::int64_t>::min());

  const Numbers kernel_axes = counted(spatial, 2);
  Value* greatest = ctx.reduce("ReduceMax", values, kernel_axes, true);
  Value* met = ctx.where(ctx.op("Equal", {values, greatest}), places, ctx.constant(kNowhere, DType::kInt64));
  return {ctx.squeeze(greatest, kernel_axes), ctx.reduce("ReduceMin", met, kernel_axes, false)};
}

void lower_max_pool(LoweringContext& ctx, std::size_t spatial) {
  const Batched input = batched(ctx, spatial);
  if (input.value->dtype() == DType::kInt64)
    return ctx.result(unbatched(ctx, max_of_windows(ctx, input.value, spatial).values, input));
  Value* greatest = max_pool(ctx, input.value, spatial, 1).front();
  Value* found = with_lowest(ctx, input.value, greatest, spatial);
  ctx.result(unbatched(ctx, with_nan(ctx, input.value, found, spatial), input));
}

void lower_max_pool1d(LoweringContext& ctx) { lower_max_pool(ctx, 1); }
void lower_max_pool2d(LoweringContext& ctx) { lower_max_pool(ctx, 2); }
void lower_max_pool3d(LoweringContext& ctx) { lower_max_pool(ctx, 3); }

/// torch counts positions within one channel, ONNX within the whole tensor.
void lower_max_pool_with_indices(LoweringContext& ctx, std::size_t spatial) {
  const Batched input = batched(ctx, spatial);
  if (input.value->dtype() == DType::kInt64) {
    const PooledMaxima found = max_of_windows(ctx, input.value, spatial);
    return ctx.results({unbatched(ctx, found.values, input), unbatched(ctx, found.places, input)});
  }
  if (ctx.node().output(1).is_unused()) {
    Value* greatest = max_pool(ctx, input.value, spatial, 1).front();
    Value* values = with_nan(ctx, input.value, with_lowest(ctx, input.value, greatest, spatial), spatial);
    return ctx.results({unbatched(ctx, values, input), nullptr});
  }

  const auto outputs = max_pool(ctx, input.value, spatial, 2);
  const Size area = merged_size(ctx, input.value, 2, 2 + spatial);
  Value* indices = ctx.op("Mod", {outputs[1], as_scalar(ctx, area)});
  PooledMaxima found = {outputs[0], indices};
  if (is_floating(input.value->dtype())) {
    found = with_nan(ctx, found, max_pool(ctx, places_of_nan(ctx, input.value, spatial), spatial, 1).front());
  }
  ctx.results({unbatched(ctx, found.values, input), unbatched(ctx, found.places, input)});
}

void lower_max_pool1d_with_indices(LoweringContext& ctx) { lower_max_pool_with_indices(ctx, 1); }
void lower_max_pool2d_with_indices(LoweringContext& ctx) { lower_max_pool_with_indices(ctx, 2); }
void lower_max_pool3d_with_indices(LoweringContext& ctx) { lower_max_pool_with_indices(ctx, 3); }

/// Every value goes back to its position within the channel; the rest is zero.
void lower_max_unpool(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const std::vector<Size> spatial = ctx.sizes(2);
  std::vector<Size> sizes = ctx.sizes_of(x);
  sizes.erase(sizes.end() - static_cast<std::ptrdiff_t>(spatial.size()), sizes.end());
  std::vector<Size> rows = sizes;
  rows.emplace_back(-1);
  std::vector<Size> plane = sizes;
  Size area = 1;
  for (const Size& size : spatial) area = multiply(ctx, area, size);
  plane.push_back(area);
  sizes.insert(sizes.end(), spatial.begin(), spatial.end());
  Value* zeros = ctx.filled(plane, ctx.number_like(0, x));
  Value* filled = scatter_elements(ctx, zeros, static_cast<std::int64_t>(plane.size()) - 1,
                                   ctx.reshape(ctx.input(1), rows), ctx.reshape(x, rows), Reduction::kNone);
  ctx.result(ctx.reshape(filled, sizes));
}

// ------------------------------------------------------------------------------------------------ average

/// Windows that stand over the padding at the end as well, one more than fits for ceil_mode.
WindowGrid reaching_grid(LoweringContext& ctx, const Pooling& pooling) {
  const std::size_t count = pooling.kernel.size();
  WindowGrid grid = {{pooling.kernel.begin(), pooling.kernel.end()}, pooling.stride, Numbers(count, 1), pooling.pads};
  for (std::size_t i = 0; i < count; ++i) grid.pads[count + i] += ctx.flag(4) ? pooling.stride[i] - 1 : 0;
  return grid;
}

/// How many elements each window has, those of the padding among them if they count: [1, 1, counts…].
Value* elements_in_windows(LoweringContext& ctx, Value* x, const Pooling& pooling, bool counts_padding) {
  std::vector<Size> sizes = ctx.sizes_of(x);
  sizes[0] = sizes[1] = 1;
  Value* one = ctx.number_like(1, x);
  Value* ones = ctx.filled(sizes, one);
  WindowGrid grid = reaching_grid(ctx, pooling);
  if (counts_padding) {
    ones = with_margins(ctx, ones, pooling.pads, one);
    for (std::size_t i = 0; i < grid.pads.size(); ++i) grid.pads[i] -= pooling.pads[i];
  }
  return window_sums(ctx, ones, grid, result_counts(ctx, pooling));
}

Value* average_of_windows(LoweringContext& ctx, Value* x, const Pooling& pooling, bool counts_padding) {
  Value* sums = window_sums(ctx, x, reaching_grid(ctx, pooling), result_counts(ctx, pooling));
  return ctx.op("Div", {sums, elements_in_windows(ctx, x, pooling, counts_padding)});
}

Value* average_pool(LoweringContext& ctx, Value* x, const Pooling& pooling, bool counts_padding) {
  const bool is_written = is_integral(x->dtype()) || lacks_double(ctx, "AveragePool", x->dtype());
  if (is_written) return average_of_windows(ctx, x, pooling, counts_padding);
  return kernel_op(ctx, "AveragePool", {x},
                   {{"kernel_shape", pooling.kernel},
                    {"strides", pooling.stride},
                    {"pads", pooling.pads},
                    {"ceil_mode", ctx.integer(4)},
                    {"count_include_pad", static_cast<std::int64_t>(counts_padding)}});
}

/// The sum over each window: a convolution of every channel with ones. What is too much of it is cut off.
Value* summed_windows(LoweringContext& ctx, Value* x, const Pooling& pooling) {
  const std::size_t count = pooling.kernel.size();
  const WindowGrid grid = reaching_grid(ctx, pooling);
  const std::vector<Size> counts = result_counts(ctx, pooling);
  if (is_integral(x->dtype()) || lacks_double(ctx, "Conv", x->dtype())) return window_sums(ctx, x, grid, counts);

  std::vector<Size> single = {multiply(ctx, size_of(ctx, x, 0), size_of(ctx, x, 1)), 1};
  for (std::size_t i = 0; i < count; ++i) single.push_back(size_of(ctx, x, static_cast<std::int64_t>(i) + 2));
  std::vector<Size> kernel = {1, 1};
  kernel.insert(kernel.end(), pooling.kernel.begin(), pooling.kernel.end());
  Value* sums = kernel_op(ctx, "Conv", {ctx.reshape(x, single), ctx.filled(kernel, ctx.number_like(1, x))},
                          {{"strides", grid.stride}, {"pads", grid.pads}});
  for (std::size_t i = 0; i < count; ++i) sums = ctx.slice(sums, static_cast<std::int64_t>(i) + 2, 0, counts[i]);
  return sums;
}

/// The sum over a window divided by another number than its size.
Value* with_divisor(LoweringContext& ctx, Value* x, const Pooling& pooling, double divisor) {
  Value* sums = summed_windows(ctx, x, pooling);
  return ctx.reshape(ctx.op("Div", {sums, ctx.number_like(divisor, sums)}), ctx.output_sizes());
}

void lower_avg_pool(LoweringContext& ctx, std::size_t spatial) {
  Batched input = batched(ctx, spatial);
  // Sums of whole numbers are exact, and divided as C++ does: in int64, which torch has the kernel for alone.
  if (is_integral(input.value->dtype())) input.value = ctx.cast(input.value, DType::kInt64);

  const Pooling pooling = pooling_of(ctx, spatial);
  const bool has_divisor = spatial > 1 && ctx.has(6);
  if (has_divisor) return ctx.result(with_divisor(ctx, input.value, pooling, ctx.number(6)));
  ctx.result(unbatched(ctx, average_pool(ctx, input.value, pooling, ctx.flag(5)), input));
}
void lower_avg_pool1d(LoweringContext& ctx) { lower_avg_pool(ctx, 1); }
void lower_avg_pool2d(LoweringContext& ctx) { lower_avg_pool(ctx, 2); }
void lower_avg_pool3d(LoweringContext& ctx) { lower_avg_pool(ctx, 3); }

}  // namespace

void populate_pooling(LoweringTable& table) {
  table.add("aten.max_pool1d.default", lower_max_pool1d);
  table.add({"aten.max_pool2d.default", "aten.mkldnn_max_pool2d.default"}, lower_max_pool2d);
  table.add("aten.max_pool3d.default", lower_max_pool3d);
  table.add("aten.max_pool1d_with_indices.default", lower_max_pool1d_with_indices);
  table.add("aten.max_pool2d_with_indices.default", lower_max_pool2d_with_indices);
  table.add("aten.max_pool3d_with_indices.default", lower_max_pool3d_with_indices);
  table.add({"aten.max_unpool2d.default", "aten.max_unpool3d.default"}, lower_max_unpool);
  table.add("aten.avg_pool1d.default", lower_avg_pool1d);
  table.add("aten.avg_pool2d.default", lower_avg_pool2d);
  table.add("aten.avg_pool3d.default", lower_avg_pool3d);
}

}  // namespace exportguard::lowering
