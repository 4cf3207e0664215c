#include <algorithm>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/checks.h"
#include "lowering/iteration.h"
#include "lowering/kernels.h"
#include "lowering/size_arithmetic.h"
#include "lowering/windows.h"

namespace exportguard::lowering {
namespace {

using Numbers = std::vector<std::int64_t>;

struct Convolution {
  Numbers stride;
  Numbers dilation;
  Numbers pads;  ///< of every spatial axis at its start, then of every one at its end
  Size groups = 1;
};

std::size_t spatial_rank(LoweringContext& ctx, const Value* weight) {
  ctx.require(ctx.rank(weight) >= 3, "the weight must have rank 3 or more, got " + std::to_string(ctx.rank(weight)));
  return ctx.rank(weight) - 2;
}

/// One number stands for all axes.
Numbers spread(Numbers numbers, std::size_t count) {
  if (numbers.size() == 1) numbers.resize(count, numbers.front());
  return numbers;
}

Numbers both_ends(Numbers padding) {
  padding.insert(padding.end(), padding.begin(), padding.end());
  return padding;
}

std::int64_t kernel_size(LoweringContext& ctx, const Value* weight, std::size_t spatial_axis) {
  const auto size = ctx.size(weight, static_cast<std::int64_t>(spatial_axis) + 2).constant();
  ctx.require(size.has_value(), "padding=\"same\" needs a weight of known size");
  return *size;
}

/// "same" keeps the sizes: what is odd of the padding goes to the end.
Numbers named_padding(LoweringContext& ctx, std::string_view name, const Value* weight, const Numbers& dilation) {
  Numbers starts;
  Numbers ends;
  for (std::size_t i = 0; i < dilation.size(); ++i) {
    const std::int64_t total = name == "same" ? dilation[i] * (kernel_size(ctx, weight, i) - 1) : 0;
    starts.push_back(total / 2);
    ends.push_back(total - total / 2);
  }
  starts.insert(starts.end(), ends.begin(), ends.end());
  return starts;
}

using Operands = std::vector<Value*>;  ///< input, weight, and the bias or null

/// What is computed over a batch; an input without one gets an axis for it. The result may be in a wider dtype.
template <typename Compute>
Value* with_batch(LoweringContext& ctx, Operands operands, const Compute& compute) {
  const bool is_batched = ctx.rank(operands[0]) == ctx.rank(operands[1]);
  if (!is_batched) operands[0] = ctx.unsqueeze(operands[0], {0});
  Value* y = compute(operands);
  return is_batched ? y : ctx.squeeze(y, {0});
}

Value* node_of(LoweringContext& ctx, std::string_view op, Operands operands, ir::AttributeList attributes) {
  if (operands.back() == nullptr) operands.pop_back();
  return kernel_op(ctx, op, operands, std::move(attributes));
}

WindowGrid grid_of(LoweringContext& ctx, Value* weight, const Convolution& convolution) {
  std::vector<Size> kernel;
  for (std::size_t i = 2; i < ctx.rank(weight); ++i) {
    kernel.push_back(size_of(ctx, weight, static_cast<std::int64_t>(i)));
  }
  return {kernel, convolution.stride, convolution.dilation, convolution.pads};
}

// ------------------------------------------------------------------------------------------------ groups

Size groups_of(LoweringContext& ctx, std::size_t argument) {
  const auto number = ctx.find_integer(argument);
  return number ? Size(*number) : Size(ctx.dim(argument));
}

std::int64_t known_groups(const Convolution& convolution) { return convolution.groups.number().value(); }

/// One axis as two: the groups, and what each has of it.
Value* split_into_groups(LoweringContext& ctx, Value* x, std::int64_t axis, const Size& groups) {
  std::vector<Size> sizes = ctx.sizes_of(x);
  Value* divisor = ctx.op("Max", {as_dim(ctx, groups), ctx.ints({1})});
  const auto at = sizes.begin() + axis;
  *at = ctx.op("Div", {as_dim(ctx, size_of(ctx, x, axis)), divisor});
  sizes.insert(at, groups);
  return ctx.reshape(x, sizes);
}

/// ONNX has the number of groups as an attribute. One that a size decides is a loop over the groups (a weight for each
/// sample: the samples are the groups of one sample).
template <typename Compute>
Value* over_groups(LoweringContext& ctx, const Operands& operands, const Convolution& convolution,
                   const Compute& compute) {
  if (convolution.groups.number()) return compute(operands, convolution);
  Convolution of_one = convolution;
  of_one.groups = 1;
  const Size& groups = convolution.groups;
  Value* x = split_into_groups(ctx, operands[0], 1, groups);
  Value* weight = split_into_groups(ctx, operands[1], 0, groups);
  Value* bias = operands[2] == nullptr ? nullptr : split_into_groups(ctx, operands[2], 0, groups);
  const WriteStep one_group = [&](Value* group, const std::vector<Value*>&) {
    const auto part = [&](Value* whole, std::int64_t axis) {
      return whole == nullptr ? nullptr : ctx.gather(whole, group, axis);
    };
    return Step{.state = {}, .collected = {compute({part(x, 1), part(weight, 0), part(bias, 0)}, of_one)}};
  };
  Value* results = repeated(ctx, as_scalar(ctx, groups), {}, one_group, 1).front();
  Numbers order = {1, 0};
  for (std::size_t axis = 2; axis <= ctx.rank(operands[0]); ++axis) order.push_back(static_cast<std::int64_t>(axis));
  std::vector<Size> sizes = ctx.output_sizes();
  if (sizes.size() < ctx.rank(operands[0])) sizes.insert(sizes.begin(), 1);
  return ctx.reshape(ctx.op("Transpose", {results}, {{"perm", order}}), sizes);
}

// ------------------------------------------------------------------------------------------------ both ways

/// Convolutions of integers, which ONNX's do not take, and those that the target has no kernel for.
bool is_product(LoweringContext& ctx, std::string_view op, const Operands& operands) {
  const DType dtype = operands.front()->dtype();
  return !is_floating(dtype) || lacks_double(ctx, op, dtype);
}

/// The operands, in a file that stops where the weight has no channel or no window: runtimes do not return then, end
/// the process, or give another shape.
Operands with_weight(LoweringContext& ctx, Operands operands) {
  const Numbers channels = {0, 1};
  Value*& weight = operands[1];
  const Numbers window = counted(ctx.rank(weight) - channels.size(), 2);
  const auto checked = [&](const Numbers& axes, const std::string& what) {
    weight = whole_if(ctx, find_entries(ctx, weight, axes, what + ", which runtimes have no answer for"), weight);
  };
  checked(channels, "a convolution of no channels");
  checked(window, "a convolution with an empty window");
  return operands;
}

Value* convolve(LoweringContext& ctx, const Operands& given, const Convolution& convolution) {
  const auto compute = [&](const Operands& operands, const Convolution& of_groups) {
    if (is_product(ctx, "Conv", operands))
      return convolved(ctx, operands, grid_of(ctx, operands[1], of_groups), known_groups(of_groups));
    return node_of(ctx, "Conv", operands,
                   {{"strides", of_groups.stride},
                    {"pads", of_groups.pads},
                    {"dilations", of_groups.dilation},
                    {"group", known_groups(of_groups)}});
  };
  return with_batch(ctx, with_weight(ctx, given),
                    [&](const Operands& operands) { return over_groups(ctx, operands, convolution, compute); });
}

/// Padding takes away from the result's ends, output padding adds to the last one: what cancels is left out for
/// who wants an output padding below the stride, and what is more than that comes behind the result (torch allows as
/// much as the dilation).
Value* convolve_transposed(LoweringContext& ctx, const Operands& given, Convolution convolution,
                           Numbers output_padding) {
  const std::size_t count = output_padding.size();
  const bool cancels = departs(ctx, Departure::kOutputPaddingBelowStride);
  for (std::size_t i = 0; cancels && i < count; ++i) {
    std::int64_t& pad = convolution.pads.at(count + i);
    const std::int64_t cancelled = output_padding[i] < convolution.stride.at(i) ? 0 : std::min(output_padding[i], pad);
    pad -= cancelled;
    output_padding[i] -= cancelled;
  }
  const Numbers whole = output_padding;
  Numbers behind(2 * count, 0);
  for (std::size_t i = 0; cancels && i < count; ++i) {
    behind[count + i] = std::max<std::int64_t>(output_padding[i] - (convolution.stride.at(i) - 1), 0);
    output_padding[i] -= behind[count + i];
  }
  const bool has_more = std::ranges::any_of(behind, [](std::int64_t more) { return more > 0; });

  const auto compute = [&](const Operands& operands, const Convolution& of_groups) {
    if (is_product(ctx, "ConvTranspose", operands)) {
      const WindowGrid grid = grid_of(ctx, operands[1], of_groups);
      return convolved_transposed(ctx, operands, grid, known_groups(of_groups), whole);
    }
    Value* bias = has_more ? operands[2] : nullptr;
    Value* y = node_of(ctx, "ConvTranspose", {operands[0], operands[1], has_more ? nullptr : operands[2]},
                       {{"strides", of_groups.stride},
                        {"pads", of_groups.pads},
                        {"dilations", of_groups.dilation},
                        {"output_padding", output_padding},
                        {"group", known_groups(of_groups)}});
    if (has_more) y = with_margins(ctx, y, behind, ctx.constant(0, y->dtype()));
    return with_bias(ctx, y, bias, count);
  };
  return with_batch(ctx, with_weight(ctx, given),
                    [&](const Operands& operands) { return over_groups(ctx, operands, convolution, compute); });
}

/// Every variant begins with input, weight and bias.
Operands operands_of(LoweringContext& ctx) { return {ctx.input(0), ctx.input(1), ctx.find_input(2)}; }

void lower_conv(LoweringContext& ctx) {
  const std::size_t count = spatial_rank(ctx, ctx.input(1));
  const Convolution convolution = {.stride = spread(ctx.integers(3), count),
                                   .dilation = spread(ctx.integers(5), count),
                                   .pads = both_ends(spread(ctx.integers(4), count)),
                                   .groups = groups_of(ctx, 6)};
  ctx.result(convolve(ctx, operands_of(ctx), convolution));
}

void lower_conv_padding(LoweringContext& ctx) {
  const std::size_t count = spatial_rank(ctx, ctx.input(1));
  const Numbers dilation = spread(ctx.integers(5), count);
  const Convolution convolution = {.stride = spread(ctx.integers(3), count),
                                   .dilation = dilation,
                                   .pads = named_padding(ctx, ctx.text(4), ctx.input(1), dilation),
                                   .groups = groups_of(ctx, 6)};
  ctx.result(convolve(ctx, operands_of(ctx), convolution));
}

/// The output padding is the argument at a position. ONNX has it as an attribute; where sizes decide it, as those that
/// `output_size` asks for, the most that there may be is added and what is asked for kept: a result with less of it is
/// the beginning of one with more.
void lower_with_output_padding(LoweringContext& ctx, const Convolution& convolution, std::size_t position) {
  const std::size_t count = convolution.stride.size();
  std::vector<Size> asked = ctx.sizes(position);
  asked.resize(count, asked.front());
  Numbers most;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t limit = std::max(convolution.stride[i], convolution.dilation[i]);
    most.push_back(asked[i].number().value_or(limit - 1));
  }
  Value* result = convolve_transposed(ctx, operands_of(ctx), convolution, most);
  const std::vector<Size> sizes = ctx.output_sizes();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t axis = sizes.size() - count + i;
    if (!asked[i].number()) result = ctx.slice(result, static_cast<std::int64_t>(axis), 0, sizes[axis]);
  }
  ctx.result(result);
}

void lower_conv_transpose(LoweringContext& ctx) {
  const std::size_t count = spatial_rank(ctx, ctx.input(1));
  const Convolution convolution = {.stride = spread(ctx.integers(3), count),
                                   .dilation = spread(ctx.integers(7), count),
                                   .pads = both_ends(spread(ctx.integers(4), count)),
                                   .groups = groups_of(ctx, 6)};
  lower_with_output_padding(ctx, convolution, 5);
}

void lower_convolution(LoweringContext& ctx) {
  const std::size_t count = spatial_rank(ctx, ctx.input(1));
  const Convolution convolution = {.stride = spread(ctx.integers(3), count),
                                   .dilation = spread(ctx.integers(5), count),
                                   .pads = both_ends(spread(ctx.integers(4), count)),
                                   .groups = groups_of(ctx, 8)};
  const bool is_transposed = ctx.flag(6);
  if (!is_transposed) return ctx.result(convolve(ctx, operands_of(ctx), convolution));
  lower_with_output_padding(ctx, convolution, 7);
}

/// Time, batch, channels; the weight is [kernel, in, out].
void lower_conv_tbc(LoweringContext& ctx) {
  const std::int64_t padding = ctx.integer(3);
  const Operands operands = {ctx.transpose(ctx.input(0), {1, 2, 0}), ctx.transpose(ctx.input(1), {2, 1, 0}),
                             ctx.input(2)};
  ctx.result(ctx.transpose(convolve(ctx, operands, {{1}, {1}, {padding, padding}, 1}), {2, 0, 1}));
}

}  // namespace

void populate_convolution(LoweringTable& table) {
  table.add({"aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default"}, lower_conv);
  table.add({"aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding"}, lower_conv_padding);
  table.add({"aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input"},
            lower_conv_transpose);
  table.add({"aten.convolution.default", "aten._convolution.default", "aten._convolution.deprecated",
             "aten.convolution_overrideable.default"},
            lower_convolution);
  table.add("aten.conv_tbc.default", lower_conv_tbc);
}

}  // namespace exportguard::lowering
