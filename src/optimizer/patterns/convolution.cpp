#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

/// What comes behind a convolution: y · scale + shift for each channel, in float64.
struct Affine {
  at::Tensor scale;  ///< [channels]
  at::Tensor shift;  ///< [channels]
  bool adds = true;  ///< whether it is more than a factor
};

/// A convolution whose weights are its own: nothing else reads what it gives, and weight and bias are constants.
struct Convolution {
  ir::Node* node = nullptr;
  at::Tensor weight;
  at::Tensor bias;  ///< may be undefined
  std::int64_t channels = 0;
  std::int64_t transposed_groups = 0;  ///< 0 unless it is transposed: the weight is then [in, channels / groups, …]
};

bool has_own_shape(const ir::Node& node) { return has_one_use(node.output()) && node.output_count() == 1; }

std::optional<Convolution> convolution_of(const Facts& facts, const Value* value) {
  ir::Node* node = producer_of(value, "Conv");
  const bool is_transposed = node == nullptr;
  if (is_transposed) node = producer_of(value, "ConvTranspose");
  if (node == nullptr || !has_own_shape(*node)) return std::nullopt;
  const ir::Tensor* weight = facts.constant(node->find_input(1));
  const ir::Tensor* bias = facts.constant(node->find_input(2));
  const bool is_constant = weight && (bias || node->find_input(2) == nullptr) && weight->shape().size() > 2;
  if (!is_constant || weight->numel() == 0) return std::nullopt;
  const std::int64_t groups = is_transposed ? int_attribute(*node, "group", 1) : 0;
  if (is_transposed && (groups < 1 || weight->shape()[0] % groups != 0)) return std::nullopt;
  const std::int64_t channels = is_transposed ? weight->shape()[1] * groups : weight->shape()[0];
  return Convolution{node, weight->aten(), bias ? bias->aten() : at::Tensor(), channels, groups};
}

/// A Gemm as a convolution of no window.
std::optional<Convolution> linear_of(const Facts& facts, const Value* value) {
  ir::Node* node = producer_of(value, "Gemm");
  const bool is_plain =
      node && has_own_shape(*node) && float_attribute(*node, "alpha", 1) == 1 && float_attribute(*node, "beta", 1) == 1;
  const ir::Tensor* weight = is_plain ? facts.constant(node->find_input(1)) : nullptr;
  const ir::Tensor* bias = is_plain ? facts.constant(node->find_input(2)) : nullptr;
  if (!weight || weight->shape().size() != 2 || weight->numel() == 0) return std::nullopt;
  const bool has_channels_first = int_attribute(*node, "transB", 0) != 0;
  const std::int64_t channels = weight->shape()[has_channels_first ? 0 : 1];
  const bool has_row = node->find_input(2) == nullptr || (bias && bias->shape() == std::vector<std::int64_t>{channels});
  if (!has_row) return std::nullopt;
  return Convolution{node, weight->aten(), bias ? bias->aten() : at::Tensor(), channels, has_channels_first ? 0 : 1};
}

bool is_finite(const at::Tensor& tensor) { return at::isfinite(tensor).all().item<bool>(); }

/// The weights of the convolution with what comes behind it; nothing if a number does not fit into its dtype.
struct Weights {
  at::Tensor weight;
  at::Tensor bias;  ///< undefined where nothing is added: 0 would take the sign of -0
};

/// The weight with a number for each channel of the result, in float64.
at::Tensor scaled(const Convolution& convolution, const at::Tensor& scale) {
  const at::Tensor weight = convolution.weight.to(at::kDouble);
  const std::int64_t groups = convolution.transposed_groups;
  if (groups == 0) return (weight.reshape({weight.size(0), -1}) * scale.unsqueeze(1)).reshape(weight.sizes());
  const at::Tensor in_groups = weight.reshape({groups, weight.size(0) / groups, weight.size(1), -1});
  return (in_groups * scale.reshape({groups, 1, weight.size(1), 1})).reshape(weight.sizes());
}

std::optional<Weights> with_affine(const Convolution& convolution, const Affine& affine) {
  const at::Tensor weight = scaled(convolution, affine.scale).to(convolution.weight.scalar_type());
  if (!convolution.bias.defined() && !affine.adds)
    return is_finite(affine.scale) && is_finite(weight) ? std::optional(Weights{weight, {}}) : std::nullopt;
  at::Tensor bias = affine.shift;
  if (convolution.bias.defined()) bias = bias + convolution.bias.to(at::kDouble) * affine.scale;
  bias = bias.to(weight.scalar_type());
  const bool fits = is_finite(affine.scale) && is_finite(weight) && is_finite(bias);
  return fits ? std::optional(Weights{weight, bias}) : std::nullopt;
}

void write_convolution(Rewriter& rewriter, const ir::Node& old, const Weights& weights) {
  Value& weight = rewriter.constant(ir::Tensor(weights.weight), old.input(1).name());
  std::vector<Value*> operands = {&old.input(0), &weight};
  if (weights.bias.defined()) {
    const std::string bias_name = old.find_input(2) ? old.input(2).name() : old.input(1).name() + ".bias";
    operands.push_back(&rewriter.constant(ir::Tensor(weights.bias), bias_name));
  }
  Value& result = rewriter.root().output();
  rewriter.replace(result, rewriter.op(old.op(), operands, attributes_of(old), result.type()));
}

Match match_affine(const Convolution& convolution, const Affine& affine) {
  const at::NoGradGuard no_grad;
  const auto weights = with_affine(convolution, affine);
  if (!weights) return Match::no("a number becomes infinite");
  return Match([node = convolution.node, weights = *weights](Rewriter& rewriter) {
    write_convolution(rewriter, *node, weights);
  });
}

// ------------------------------------------------------------------------------------------------ batch norm

std::optional<at::Tensor> channel_constant(const Facts& facts, const Value* value, std::int64_t channels) {
  const ir::Tensor* tensor = facts.constant(value);
  const bool fits = tensor && tensor->shape() == std::vector<std::int64_t>{channels};
  return fits ? std::optional(tensor->aten().to(at::kDouble)) : std::nullopt;
}

/// What a BatchNormalization does to each channel; nothing and a literal `reason` if that is not known.
std::optional<Affine> affine_of_batch_norm(const Facts& facts, const ir::Node& node, std::int64_t channels,
                                           const char*& reason) {
  reason = "it takes the moments of the batch";
  if (int_attribute(node, "training_mode", 0) != 0) return std::nullopt;
  const auto scale = channel_constant(facts, node.find_input(1), channels);
  const auto shift = channel_constant(facts, node.find_input(2), channels);
  const auto mean = channel_constant(facts, node.find_input(3), channels);
  const auto variance = channel_constant(facts, node.find_input(4), channels);
  reason = "its parameters are no constants";
  if (!scale || !shift || !mean || !variance) return std::nullopt;
  const at::Tensor factor = *scale / (*variance + float_attribute(node, "epsilon", 1e-5)).sqrt();
  return Affine{factor, *shift - *mean * factor};
}

Match match_batch_norm(const Facts& facts, ir::Node& node) {
  const at::NoGradGuard no_grad;
  auto convolution = convolution_of(facts, node.find_input(0));
  if (!convolution) convolution = linear_of(facts, node.find_input(0));
  if (!convolution) return Match::no("the operand is no convolution of its own with constant weights");
  const char* reason = nullptr;
  const auto affine = affine_of_batch_norm(facts, node, convolution->channels, reason);
  return affine ? match_affine(*convolution, *affine) : Match::no(reason);
}

// ------------------------------------------------------------------------------------------------ rows

/// Rows [n, channels] of x · weight + bias, each with one reader.
struct Rows {
  const ir::Node* reshape = nullptr;
  const ir::Node* product = nullptr;
  const Value* named = nullptr;  ///< what the weight is called after
  Convolution linear;            ///< its weight is [in, channels]
};

/// A weight for the right of a product, [in, channels], that may lie the other way round.
const Value* weight_of(const Facts& facts, const Value* value, at::Tensor& weight) {
  const ir::Node* swap = producer_of(value, "Transpose");
  const Value* given = swap ? swap->find_input(0) : value;
  const ir::Tensor* tensor = facts.constant(given);
  if (!tensor || tensor->shape().size() != 2 || tensor->numel() == 0) return nullptr;
  weight = swap ? tensor->aten().t() : tensor->aten();
  return given;
}

std::optional<Rows> rows_of(const Facts& facts, const Value* value) {
  Rows rows;
  rows.reshape = producer_of(value, "Reshape");
  if (!rows.reshape || !has_one_use(*value) || !has_rank(*value, 2)) return std::nullopt;
  const Value* linear = rows.reshape->find_input(0);
  const ir::Node* sum = producer_of(linear, "Add");
  for (std::size_t i = 0; sum && has_one_use(*linear) && i < 2; ++i) {
    const ir::Tensor* bias = facts.constant(sum->find_input(i));
    if (!bias || bias->shape().size() != 1 || !is_floating(bias->dtype())) continue;
    rows.linear.bias = bias->aten();
    linear = sum->find_input(1 - i);
    break;
  }
  rows.product = producer_of(linear, "MatMul");
  if (!rows.product || !has_one_use(*linear)) return std::nullopt;
  rows.named = weight_of(facts, rows.product->find_input(1), rows.linear.weight);
  if (rows.named == nullptr) return std::nullopt;
  rows.linear.channels = rows.linear.weight.size(1);
  rows.linear.transposed_groups = 1;
  const ir::Dim channels(rows.linear.channels);
  const bool has_own_bias = !rows.linear.bias.defined() || rows.linear.bias.numel() == rows.linear.channels;
  const bool keeps_channels = dim(rows.reshape->input(0), -1) == channels && dim(*value, 1) == channels;
  return has_own_bias && keeps_channels ? std::optional(rows) : std::nullopt;
}

void write_rows(Rewriter& rewriter, const Rows& rows, const Weights& weights) {
  const std::string& name = rows.named->name();
  Value& weight = rewriter.constant(ir::Tensor(weights.weight), name);
  Value& bias = rewriter.constant(ir::Tensor(weights.bias), name + ".bias");
  const ir::Type& type = rows.product->output().type();
  Value& product = rewriter.op("MatMul", {&rows.product->input(0), &weight}, {}, type);
  Value& sum = rewriter.op("Add", {&product, &bias}, {}, type);
  Value& result = rewriter.root().output();
  rewriter.replace(
      result, rewriter.op("Reshape", {&sum, &rows.reshape->input(1)}, attributes_of(*rows.reshape), result.type()));
}

Match match_batch_norm_of_rows(const Facts& facts, ir::Node& node) {
  const at::NoGradGuard no_grad;
  const auto rows = rows_of(facts, node.find_input(0));
  if (!rows) return Match::no("the operand is no product of its own with a weight, reshaped to rows");
  const char* reason = nullptr;
  const auto affine = affine_of_batch_norm(facts, node, rows->linear.channels, reason);
  if (!affine) return Match::no(reason);
  const auto weights = with_affine(rows->linear, *affine);
  if (!weights) return Match::no("a number becomes infinite");
  return Match([rows = *rows, weights = *weights](Rewriter& rewriter) { write_rows(rewriter, rows, weights); });
}

// ------------------------------------------------------------------------------------------------ scale and bias

/// One number for each channel (axis 1 of `result`), or one for all.
std::optional<at::Tensor> per_channel(const Facts& facts, const Value* value, const Value& result,
                                      std::int64_t channels) {
  const ir::Tensor* tensor = facts.constant(value);
  const auto rank = result.type().rank();
  if (!tensor || !rank || tensor->shape().size() > *rank || !is_floating(tensor->dtype())) return std::nullopt;
  const std::size_t offset = *rank - tensor->shape().size();
  for (std::size_t i = 0; i < tensor->shape().size(); ++i) {
    const bool is_channel = offset + i == 1 && tensor->shape()[i] == channels;
    if (tensor->shape()[i] != 1 && !is_channel) return std::nullopt;
  }
  const at::Tensor numbers = tensor->aten().to(at::kDouble).reshape(-1);
  return numbers.numel() == channels ? numbers : numbers.expand({channels}).contiguous();
}

/// What an operator with these numbers does to its other operand, which is operand `i`; nothing for a number divided by
/// that operand.
std::optional<Affine> affine_of(const ir::Node& node, std::size_t i, const at::Tensor& numbers) {
  const at::Tensor ones = at::ones_like(numbers);
  const at::Tensor zeros = at::zeros_like(numbers);
  if (node.op() == "Add") return Affine{ones, numbers};
  if (node.op() == "Sub") return i == 0 ? Affine{ones, -numbers} : Affine{-ones, numbers};
  if (node.op() == "Mul") return Affine{numbers, zeros, false};
  return i == 0 ? std::optional(Affine{numbers.reciprocal(), zeros, false}) : std::nullopt;
}

Match match_scale_or_bias(const Facts& facts, ir::Node& node) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto convolution = convolution_of(facts, node.find_input(i));
    if (!convolution) continue;
    if (!same_shape(node.input(i), node.output())) return Match::no("the result is stretched");
    const auto numbers = per_channel(facts, node.find_input(1 - i), node.output(), convolution->channels);
    if (!numbers) return Match::no("the other operand is no number for each channel");
    const auto affine = affine_of(node, i, *numbers);
    if (!affine) return Match::no("a number is divided by the convolution");
    const bool has_other_zeros = !affine->adds && affine->scale.lt(0).any().item<bool>();
    return has_other_zeros ? Match::no("a negative factor makes -0 of 0") : match_affine(*convolution, *affine);
  }
  return Match::no("no operand is a convolution of its own with constant weights");
}

// ------------------------------------------------------------------------------------------------ padding

/// Zeros put around the spatial axes alone, none taken away.
std::optional<std::vector<std::int64_t>> zero_padding(const Facts& facts, const ir::Node& pad) {
  const auto rank = pad.input(0).type().rank();
  const ir::Attribute* mode = pad.find_attribute("mode");
  const bool is_constant = mode == nullptr || std::get<std::string>(*mode) == "constant";
  const bool is_zero = pad.find_input(2) == nullptr || facts.is_number(pad.find_input(2), 0);
  const auto pads = facts.ints(pad.find_input(1));
  if (!rank || *rank < 3 || !is_constant || !is_zero || pad.find_input(3) || !pads || pads->size() != 2 * *rank)
    return std::nullopt;
  std::vector<std::int64_t> spatial;
  for (std::size_t i = 0; i < pads->size(); ++i) {
    const bool is_spatial = i % *rank >= 2;
    if ((*pads)[i] < 0 || (!is_spatial && (*pads)[i] != 0)) return std::nullopt;
    if (is_spatial) spatial.push_back((*pads)[i]);
  }
  return spatial;
}

Match match_padded(const Facts& facts, ir::Node& node) {
  const ir::Node* pad = producer_of(node.find_input(0), "Pad");
  if (pad == nullptr) return Match::no("the operand is not padded");
  const auto padding = zero_padding(facts, *pad);
  if (!padding) return Match::no("the padding is no known number of zeros around the spatial axes");
  const ir::Attribute* automatic = node.find_attribute("auto_pad");
  if (automatic && std::get<std::string>(*automatic) != "NOTSET") return Match::no("it pads by itself");

  std::vector<std::int64_t> pads = *padding;
  if (const auto* own = find_ints_attribute(node, "pads")) {
    if (own->size() != pads.size()) return Match::no("the ranks differ");
    std::ranges::transform(pads, *own, pads.begin(), std::plus<>());
  }

  return Match([=, &node](Rewriter& rewriter) {
    std::vector<Value*> inputs = {&pad->input(0)};
    for (std::size_t i = 1; i < node.input_count(); ++i) inputs.push_back(node.find_input(i));
    std::vector<ir::NamedAttribute> attributes = attributes_of(node);
    std::erase_if(attributes, [](const auto& attribute) { return attribute.first == "pads"; });
    attributes.emplace_back("pads", pads);
    rewriter.replace(node.output(), rewriter.op("Conv", inputs, std::move(attributes), node.output().type()));
  });
}

}  // namespace

void populate_convolution(PatternTable& table) {
  table.add(
      {.name = "conv_batch_norm",
       .matches =
           "`BatchNormalization` with known moments, of a `Conv`, `ConvTranspose` or `Gemm` that nothing else reads",
       .makes = "that operator with other weights",
       .roots = {"BatchNormalization"},
       .match = match_batch_norm,
       .stage = Stage::kFuse});
  table.add({.name = "batch_norm_of_rows",
             .matches = "`BatchNormalization` with known moments, of a product with a weight, maybe with a bias, that "
                        "is reshaped to [rows, channels] and that nothing else reads",
             .makes = "the product with another weight, and a bias",
             .roots = {"BatchNormalization"},
             .match = match_batch_norm_of_rows,
             .stage = Stage::kFuse});
  table.add(
      {.name = "conv_scale_bias",
       .matches =
           "such a convolution times, divided by, plus or minus a number for each channel, or such a number minus it",
       .makes = "the convolution with other weights",
       .roots = {"Add", "Sub", "Mul", "Div"},
       .match = match_scale_or_bias,
       .stage = Stage::kFuse});
  table.add({.name = "conv_padded",
             .matches = "`Conv` of zeros put around the spatial axes by `Pad`",
             .makes = "`Conv` that pads",
             .roots = {"Conv"},
             .match = match_padded,
             .stage = Stage::kFuse});
}

}  // namespace exportguard::optimizer
