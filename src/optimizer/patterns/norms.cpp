#include "optimizer/norms.h"

#include <fmt/format.h>

#include <algorithm>

#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

constexpr std::int64_t kFloat32 = 1;  // TensorProto.FLOAT

Value& ones(Rewriter& rewriter, std::int64_t size, DType dtype) {
  return rewriter.constant(ir::Tensor::filled(1, dtype, std::vector<std::int64_t>{size}),
                           fmt::format("ones.{}[{}]", name(dtype), size));
}

ir::AttributeList over_last_axis(double epsilon) { return {{"axis", -1}, {"epsilon", epsilon}}; }

double epsilon_of(const ir::Node& norm) { return float_attribute(norm, "epsilon", 1e-5); }

/// A weight or bias for the last axis, that stretches nothing.
bool is_row(const Value* value) { return value == nullptr || value->type().rank().value_or(2) < 2; }

/// A norm over the last axis alone, computed in float32.
ir::Node* norm_of(const Value* value) {
  ir::Node* norm = producer_of(value, "RMSNormalization");
  if (norm == nullptr) norm = producer_of(value, "LayerNormalization");
  const bool is_single =
      norm && norm->output_count() == 1 && int_attribute(*norm, "stash_type", kFloat32) == kFloat32 &&
      axis_from_start(norm->input(0), int_attribute(*norm, "axis", -1)) == axis_from_start(norm->input(0), -1);
  return is_single && shape_of(norm->input(0)) && is_row(norm->find_input(1)) && is_row(norm->find_input(2)) ? norm
                                                                                                             : nullptr;
}

/// The same norm of another operand.
Value& norm_like(Rewriter& rewriter, const ir::Node& norm, std::vector<Value*> operands, ir::Type type) {
  return rewriter.op(norm.op(), std::move(operands), over_last_axis(epsilon_of(norm)), std::move(type));
}

// ------------------------------------------------------------------------------------------------ written out

/// The norm of `x` that stands for what was written out, with its factor behind it.
void write_norm(Rewriter& rewriter, std::string_view op, Value& x, const RootMeanSquare& found) {
  Value& old = rewriter.root().output();
  Value& weight = ones(rewriter, found.size, DType::kFloat32);
  Value* norm = &rewriter.op(op, {&x, &weight}, over_last_axis(found.epsilon), old.type());
  if (found.factor) norm = &rewriter.op("Mul", {norm, found.factor}, {}, old.type());
  rewriter.replace(old, *norm);
}

/// x / √(mean(x²) + ε) over the last axis, whose size is known and not 0.
Match match_rms(const Facts& facts, ir::Node& node) {
  const char* reason = nullptr;
  const auto found = root_mean_square_of(facts, node, reason);
  if (!found) return Match::no(reason);
  return Match([=](Rewriter& rewriter) { write_norm(rewriter, "RMSNormalization", *found->x, *found); });
}

Match match_layer(const Facts& facts, ir::Node& node) {
  const char* reason = nullptr;
  const auto found = root_mean_square_of(facts, node, reason);
  if (!found) return Match::no(reason);
  Value* x = centered(facts, found->x);
  if (x == nullptr) return Match::no("what is normalized is not moved to a mean of 0");
  return Match([=](Rewriter& rewriter) { write_norm(rewriter, "LayerNormalization", *x, *found); });
}

/// Channels stand behind the batch, and what they are normalized over comes to the end for the operator and goes back.
Match match_layer_of_channels(const Facts& facts, ir::Node& node) {
  const auto rank = node.output().type().rank();
  if (!rank || *rank < 3) return Match::no("there is no axis behind the channels");
  const char* reason = nullptr;
  const auto found = root_mean_square_of(facts, node, reason, 1);
  if (!found) return Match::no(reason);
  Value* x = centered(facts, found->x, 1);
  if (x == nullptr) return Match::no("what is normalized is not moved to a mean of 0");
  return Match([=, found = *found, rank = static_cast<std::int64_t>(*rank)](Rewriter& rewriter) {
    std::vector<std::int64_t> there = {0};
    std::vector<std::int64_t> back = {0, rank - 1};
    for (std::int64_t axis = 2; axis < rank; ++axis) {
      there.push_back(axis);
      back.push_back(axis - 1);
    }
    there.push_back(1);
    Value& last = rewriter.transpose(*x, there);
    Value& weight = ones(rewriter, found.size, DType::kFloat32);
    Value& norm = rewriter.op("LayerNormalization", {&last, &weight}, over_last_axis(found.epsilon), last.type());
    Value* result = &rewriter.transpose(norm, back);
    Value& old = rewriter.root().output();
    if (found.factor) result = &rewriter.op("Mul", {result, found.factor}, {}, old.type());
    rewriter.replace(old, *result);
  });
}

/// RMSNormalization of x - mean(x).
Match match_centered(const Facts& facts, ir::Node& node) {
  if (norm_of(&node.output()) == nullptr) return Match::no("it is not over the last axis alone");
  Value* x = centered(facts, node.find_input(0));
  if (x == nullptr) return Match::no("the operand is not moved to a mean of 0");
  if (x->dtype() == DType::kFloat64) return Match::no("the mean would be taken in float32");
  return Match([=, &node](Rewriter& rewriter) {
    rewriter.replace(node.output(), rewriter.op("LayerNormalization", {x, &node.input(1)},
                                                over_last_axis(epsilon_of(node)), node.output().type()));
  });
}

// ------------------------------------------------------------------------------------------------ weight and bias

bool is_unweighted(const Facts& facts, const ir::Node* norm) {
  return norm && norm->input_count() == 2 && has_one_use(norm->output()) && is_all_ones(facts, norm->find_input(1));
}

/// The operator computes in float32 and rounds to the operand's dtype before it multiplies, as these models do.
Match match_narrowed(const Facts& facts, ir::Node& node) {
  const ir::Node* norm = norm_of(&node.input(0));
  if (!is_unweighted(facts, norm)) return Match::no("the operand is no norm without a weight");
  const ir::Node* widening = producer_of(norm->find_input(0), "Cast");
  const DType narrow = node.output().dtype();
  const bool is_widened = widening && widening->input(0).dtype() == narrow;
  if (!is_widened || !is_narrow_float(narrow)) return Match::no("it does not go to float32 and back");
  return Match([=, &node](Rewriter& rewriter) {
    Value& weight = ones(rewriter, rewriter.facts().constant(norm->find_input(1))->numel(), narrow);
    rewriter.replace(node.output(), norm_like(rewriter, *norm, {&widening->input(0), &weight}, node.output().type()));
  });
}

/// A norm, maybe behind a Transpose that moves its last axis.
struct Seen {
  const ir::Node* norm = nullptr;  ///< null if the value is something else
  const std::vector<std::int64_t>* axes = nullptr;
};

Seen norm_behind(const Value* value) {
  const ir::Node* swap = producer_of(value, "Transpose");
  if (swap == nullptr || !has_one_use(*value)) return {norm_of(value), nullptr};
  const auto* axes = find_ints_attribute(*swap, "perm");
  return {axes ? norm_of(swap->find_input(0)) : nullptr, axes};
}

/// Numbers for each entry of the norm's last axis, as they lie for what the norm gives: [size], or [size, 1, 1].
bool fits_last_axis(const Value& numbers, const Seen& seen) {
  const ir::Node& norm = *seen.norm;
  if (numbers.dtype() != norm.input(0).dtype() || !shape_of(numbers)) return false;
  if (seen.axes == nullptr) return same_shape(numbers, norm.input(1)) && has_rank(numbers, 1);
  const ir::Shape& shape = *shape_of(numbers);
  const std::size_t rank = seen.axes->size();
  const auto place =
      static_cast<std::size_t>(std::ranges::find(*seen.axes, std::ssize(*seen.axes) - 1) - seen.axes->begin());
  if (shape.size() > rank || place + shape.size() < rank) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool is_place = i + rank - shape.size() == place;
    if (shape[i] != (is_place ? *dim(norm.input(0), -1) : ir::Dim(1))) return false;
  }
  return true;
}

/// The same norm with these operands behind the first, each in one axis, and the Transpose again.
void write_seen(Rewriter& rewriter, const Seen& seen, std::vector<Value*> operands) {
  for (Value*& operand : operands) {
    if (has_rank(*operand, 1)) continue;
    const ir::Dim size = *dim(seen.norm->input(0), -1);
    operand = &rewriter.op("Reshape", {operand, &rewriter.ints({-1})}, {},
                           ir::Type::tensor(operand->dtype(), ir::Shape{size}));
  }
  operands.insert(operands.begin(), &seen.norm->input(0));
  Value& norm = norm_like(rewriter, *seen.norm, operands, seen.norm->output().type());
  rewriter.replace(rewriter.root().output(), seen.axes ? rewriter.transpose(norm, *seen.axes) : norm);
}

Match match_weighted(const Facts& facts, ir::Node& node) {
  for (std::size_t i = 0; i < 2; ++i) {
    const Seen seen = norm_behind(node.find_input(i));
    if (!is_unweighted(facts, seen.norm)) continue;
    Value& weight = node.input(1 - i);
    if (!fits_last_axis(weight, seen)) return Match::no("the factor is no weight for the last axis");
    return Match([=, &weight](Rewriter& rewriter) { write_seen(rewriter, seen, {&weight}); });
  }
  return Match::no("no operand is a norm without a weight");
}

Match match_biased(const Facts&, ir::Node& node) {
  for (std::size_t i = 0; i < 2; ++i) {
    const Seen seen = norm_behind(node.find_input(i));
    const bool is_open = seen.norm && seen.norm->op() == "LayerNormalization" && seen.norm->find_input(2) == nullptr;
    if (!is_open || !has_one_use(seen.norm->output())) continue;
    Value& bias = node.input(1 - i);
    if (!fits_last_axis(bias, seen)) return Match::no("the summand is no bias for the last axis");
    return Match([=, &bias](Rewriter& rewriter) { write_seen(rewriter, seen, {&seen.norm->input(1), &bias}); });
  }
  return Match::no("no operand is a LayerNormalization without a bias");
}

// ------------------------------------------------------------------------------------------------ surroundings

/// What is done for each row of the last axis may be done before the rows change places.
Match match_transposed(const Facts&, ir::Node& node) {
  if (norm_of(&node.output()) == nullptr) return Match::no("it is not over the last axis alone");
  const ir::Node* swap = producer_of(node.find_input(0), "Transpose");
  const auto* permutation = swap ? find_ints_attribute(*swap, "perm") : nullptr;
  const bool keeps_last = permutation && permutation->back() + 1 == static_cast<std::int64_t>(permutation->size());
  if (!keeps_last || !has_one_use(swap->output()) || !shape_of(swap->input(0)))
    return Match::no("the operand is no Transpose that keeps the last axis");
  return Match([=, &node, permutation = *permutation](Rewriter& rewriter) {
    std::vector<Value*> operands = {&swap->input(0)};
    for (std::size_t i = 1; i < node.input_count(); ++i) operands.push_back(node.find_input(i));
    Value& normed = norm_like(rewriter, node, operands, swap->input(0).type());
    rewriter.replace(node.output(), rewriter.transpose(normed, permutation));
  });
}

}  // namespace

void populate_norms(PatternTable& table) {
  table.add({.name = "layer_norm",
             .matches = "y · 1 / √(mean(y²) + ε), maybe times a weight, or y divided by the root, for y = x - mean(x) "
                        "over the last axis in "
                        "float32",
             .makes = "`LayerNormalization` with a weight of ones",
             .roots = {"Mul", "Div"},
             .match = match_layer,
             .stage = Stage::kFuse});
  table.add({.name = "layer_norm_of_channels",
             .matches = "the same over the channels of [batch, channels, …]",
             .makes = "`LayerNormalization` between two `Transpose`s",
             .roots = {"Mul", "Div"},
             .match = match_layer_of_channels,
             .stage = Stage::kFuse});
  table.add({.name = "layer_norm_of_centered",
             .matches = "`RMSNormalization` of x - mean(x)",
             .makes = "`LayerNormalization` of x",
             .roots = {"RMSNormalization"},
             .match = match_centered,
             .stage = Stage::kFuse,
             .opset = 23});
  table.add(
      {.name = "rms_norm",
       .matches =
           "x · 1 / √(mean(x²) + ε), maybe times a weight, or x divided by the root, over the last axis in float32",
       .makes = "`RMSNormalization` with a weight of ones",
       .roots = {"Mul", "Div"},
       .match = match_rms,
       .stage = Stage::kFuse,
       .opset = 23});
  table.add({.name = "norm_float16",
             .matches = "a float16 tensor cast to float32, normalized without a weight and cast back",
             .makes = "the norm of the float16 tensor, which computes in float32",
             .roots = {"Cast"},
             .match = match_narrowed,
             .stage = Stage::kFuse});
  table.add(
      {.name = "norm_weight",
       .matches =
           "a norm with a weight of ones, maybe behind a `Transpose`, times a weight (1 + weight is folded before)",
       .makes = "the norm with that weight",
       .roots = {"Mul"},
       .match = match_weighted,
       .stage = Stage::kFuse});
  table.add({.name = "layer_norm_bias",
             .matches = "`LayerNormalization` without a bias, maybe behind a `Transpose`, plus one",
             .makes = "`LayerNormalization` with the bias",
             .roots = {"Add"},
             .match = match_biased,
             .stage = Stage::kFuse});
  table.add({.name = "norm_of_transposed",
             .matches = "a norm over the last axis of a `Transpose` that keeps that axis",
             .makes = "the `Transpose` of the norm",
             .roots = {"RMSNormalization", "LayerNormalization"},
             .match = match_transposed,
             .stage = Stage::kFuse});
}

}  // namespace exportguard::optimizer
