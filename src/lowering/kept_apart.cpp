#include "exportguard/lowering/kept_apart.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>

#include "exportguard/ir/builder.h"
#include "lowering/target_facts.h"

namespace exportguard::lowering {
namespace {

const ir::Node* producer_of(const ir::Value* value, std::string_view op) {
  const ir::Node* node = value == nullptr ? nullptr : value->producer();
  return node != nullptr && node->is("", op) ? node : nullptr;
}

const ir::Tensor* one_number(const ir::Builder& builder, const ir::Value* value) {
  const ir::Tensor* tensor = value == nullptr ? nullptr : builder.find_constant(value);
  return tensor != nullptr && tensor->numel() == 1 ? tensor : nullptr;
}

/// Whether a node multiplies or divides by one number.
bool is_scale(const ir::Builder& builder, const ir::Node* node) {
  if (node == nullptr || (!node->is("", "Mul") && !node->is("", "Div"))) return false;
  const bool by_second = one_number(builder, node->find_input(1)) != nullptr;
  return by_second || (node->is("", "Mul") && one_number(builder, node->find_input(0)) != nullptr);
}

/// Whether a number over a tensor has more axes than the tensor: `ones(1, 1) / x`.
bool adds_axes(const ir::Builder& builder, const ir::Node* quotient) {
  const ir::Tensor* number = quotient == nullptr ? nullptr : one_number(builder, quotient->find_input(0));
  const auto rank = quotient == nullptr ? std::nullopt : quotient->input(1).type().rank();
  return number != nullptr && rank && static_cast<std::size_t>(number->aten().dim()) > *rank;
}

bool quantize_alike(const ir::Node& quantize, const ir::Node& dequantize) {
  return quantize.find_input(1) == dequantize.find_input(1) && quantize.find_input(2) == dequantize.find_input(2);
}

/// The place of the operand that a target would merge with what computes it.
std::optional<std::size_t> merged_operand(const ir::Builder& builder, const ir::Node& node, Target target) {
  if (is_scale(builder, &node) && departs(target, Departure::kSharedScaleIsLost)) {
    const std::size_t place = one_number(builder, node.find_input(1)) != nullptr ? 0 : 1;
    if (is_scale(builder, node.input(place).producer()) && node.input(place).uses().size() > 1) return place;
  }
  if (node.is("", "Mul") && departs(target, Departure::kQuotientLosesAxes)) {
    for (std::size_t place = 0; place < 2; ++place) {
      if (adds_axes(builder, producer_of(&node.input(place), "Div"))) return place;
    }
  }
  if (node.is("", "Clip") && node.output().dtype() == DType::kFloat64 && producer_of(&node.input(0), "Relu") &&
      departs(target, Departure::kClipOfDoubles)) {
    return 0;
  }
  if (node.is("", "QuantizeLinear") && departs(target, Departure::kSecondRoundingIsLost)) {
    const ir::Node* before = producer_of(&node.input(0), "DequantizeLinear");
    if (before != nullptr && !quantize_alike(node, *before)) return 0;
  }
  // Of a Slice, which stops at the end of an axis, more rows than a table has are no error.
  if (node.is("", "Gather") && producer_of(&node.input(1), "Range") && departs(target, Departure::kGatherOfRange)) {
    return 1;
  }
  return std::nullopt;
}

bool put_between(ir::Model& model, ir::Node& node, Target target) {
  ir::Builder builder(model, node);
  const auto place = merged_operand(builder, node, target);
  if (!place || (!is_floating(node.input(*place).dtype()) && !node.is("", "Gather"))) return false;
  node.set_input(*place, builder.op("Neg", {builder.op("Neg", {&node.input(*place)})}));
  return true;
}

// ------------------------------------------------------------------------------------------------ bytes

/// The zero point of int8 that a node quantizes inputs with, if nothing but that dequantizes them again.
const ir::Tensor* zero_point_of_pairs(const ir::Builder& builder, const ir::Node& quantize) {
  if (!quantize.is("", "QuantizeLinear") || quantize.find_input(2) == nullptr) return nullptr;
  const ir::Tensor* number = builder.find_constant(&quantize.input(2));
  if (number == nullptr || number->dtype() != DType::kInt8) return nullptr;
  if (builder.find_constant(&quantize.input(0)) != nullptr || quantize.output().uses().empty()) return nullptr;
  const bool are_pairs = std::ranges::all_of(quantize.output().uses(), [&](const ir::Use* use) {
    return use->user().is("", "DequantizeLinear") && quantize_alike(quantize, use->user());
  });
  return are_pairs ? number : nullptr;
}

bool quantize_to_uint8(ir::Model& model, ir::Node& quantize) {
  ir::Builder builder(model, quantize);
  const ir::Tensor* number = zero_point_of_pairs(builder, quantize);
  if (number == nullptr) return false;
  const at::NoGradGuard no_grad;
  ir::Value* zero_point = builder.constant(ir::Tensor((number->aten().to(at::kShort) + 128).to(at::kByte)));
  for (const ir::Use* use : quantize.output().uses()) use->user().set_input(2, zero_point);
  quantize.set_input(2, zero_point);
  quantize.output().set_type(ir::Type::tensor(DType::kUint8, quantize.output().type().shape));
  return true;
}

/// Writes out a DequantizeLinear of int8 that is of no such pair: one behind a Clip or of an input. Of a constant it
/// stays, since nothing moves what is packed.
bool dequantize_by_arithmetic(ir::Model& model, ir::Node& node) {
  constexpr int kMovesFrom = 21;  // opset
  if (!node.is("", "DequantizeLinear") || node.input(0).dtype() != DType::kInt8) return false;
  ir::Builder builder(model, node);
  const ir::Tensor* zero_point = one_number(builder, node.find_input(2));
  if (builder.opset() < kMovesFrom || zero_point == nullptr || builder.find_constant(&node.input(0))) return false;
  ir::Value& before = node.output();
  ir::Value* steps = builder.cast(&node.input(0), before.dtype());
  const std::int64_t moved = zero_point->to_ints().front();
  if (moved != 0) steps = builder.op("Sub", {steps, builder.constant(moved, before.dtype())});
  ir::Value* after = builder.op("Mul", {steps, &node.input(1)});
  after->set_name(before.name());
  before.replace_all_uses_with(*after);
  return true;
}

std::size_t keep_apart_in(ir::Model& model, ir::Graph& graph, Target target) {
  const bool leaves_int8 = !departs(target, Departure::kInt8StopsIt);
  std::size_t count = 0;
  for (ir::Node& node : graph) {
    for (ir::Graph* body : node.subgraphs()) count += keep_apart_in(model, *body, target);
    if (put_between(model, node, target)) ++count;
    if (leaves_int8) continue;
    if (quantize_to_uint8(model, node) || dequantize_by_arithmetic(model, node)) ++count;
  }
  graph.erase_dead_nodes();
  return count;
}

}  // namespace

std::size_t keep_apart(ir::Model& model, Target target) {
  std::size_t count = keep_apart_in(model, *model.graph, target);
  for (ir::Function& function : model.functions) count += keep_apart_in(model, *function.body, target);
  return count;
}

}  // namespace exportguard::lowering
