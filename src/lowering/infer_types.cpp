#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "lowering/shared.h"

namespace exportguard::lowering {
namespace {

using Shared = LoweringContext::Shared;
using ir::NodeSpec;
using ir::Shape;

bool is_one_of(std::string_view op, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, op) != names.end();
}

const ir::Attribute* find_attribute(const NodeSpec& spec, std::string_view name) {
  for (const auto& [key, value] : spec.attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::int64_t int_attribute(const NodeSpec& spec, std::string_view name, std::int64_t fallback) {
  const ir::Attribute* attribute = find_attribute(spec, name);
  const auto* number = attribute ? std::get_if<std::int64_t>(attribute) : nullptr;
  return number ? *number : fallback;
}

DType dtype_of_input(const NodeSpec& spec, std::size_t i) {
  return i < spec.inputs.size() && spec.inputs[i] ? spec.inputs[i]->dtype() : DType::kUndefined;
}

bool gives_bool(std::string_view op) {
  return is_one_of(
      op, {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Not", "Xor", "IsNaN", "IsInf"});
}

DType infer_dtype(const NodeSpec& spec) {
  const std::string_view op = spec.op;
  if (gives_bool(op)) return DType::kBool;
  if (is_one_of(op, {"Shape", "Size", "ArgMax", "ArgMin", "NonZero"})) return DType::kInt64;
  if (op == "Cast") return static_cast<DType>(int_attribute(spec, "to", 0));
  if (is_one_of(op, {"EyeLike", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial", "RandomNormal",
                     "RandomUniform"})) {
    const auto fallback = op == "Multinomial" ? DType::kInt32 : dtype_of_input(spec, 0);
    return static_cast<DType>(int_attribute(spec, "dtype", static_cast<std::int64_t>(fallback)));
  }
  if (is_one_of(op, {"Where", "CastLike"})) return dtype_of_input(spec, 1);
  if (op == "OneHot") return dtype_of_input(spec, 2);
  if (op == "Constant" || op == "ConstantOfShape") {
    const ir::Attribute* value = find_attribute(spec, "value");
    const auto* tensor = value ? std::get_if<ir::Tensor>(value) : nullptr;
    return tensor ? tensor->dtype() : DType::kFloat32;
  }
  if (is_one_of(op, {"If", "Loop", "Scan"})) return DType::kUndefined;
  return dtype_of_input(spec, 0);
}

// ------------------------------------------------------------------------------------------------ shapes

using OptionalShape = std::optional<Shape>;

OptionalShape shape_of_input(const NodeSpec& spec, std::size_t i) {
  return i < spec.inputs.size() && spec.inputs[i] ? spec.inputs[i]->type().shape : std::nullopt;
}

ir::Dim broadcast(Shared& shared, const ir::Dim& a, const ir::Dim& b) {
  if (a == b || b.constant() == 1) return a;
  if (a.constant() == 1) return b;
  if (a.is_constant()) return a;
  return b.is_constant() ? b : shared.fresh_symbol();
}

OptionalShape broadcast_inputs(Shared& shared, const NodeSpec& spec) {
  Shape result;
  for (const Value* input : spec.inputs) {
    if (input == nullptr || !input->type().shape) return std::nullopt;
    Shape other = *input->type().shape;
    if (other.size() > result.size()) std::swap(other, result);
    const std::size_t offset = result.size() - other.size();
    for (std::size_t i = 0; i < other.size(); ++i) result[offset + i] = broadcast(shared, result[offset + i], other[i]);
  }
  return result;
}

std::vector<std::int64_t> constant_ints(const NodeSpec& spec, std::size_t i) {
  const Value* value = i < spec.inputs.size() ? spec.inputs[i] : nullptr;
  return value && value->initializer() ? value->initializer()->to_ints() : std::vector<std::int64_t>{};
}

OptionalShape infer_matmul(Shared& shared, const NodeSpec& spec) {
  const auto a = shape_of_input(spec, 0);
  const auto b = shape_of_input(spec, 1);
  if (!a || !b || a->size() < 2 || b->size() < 2) return std::nullopt;
  NodeSpec batch;
  Shape result(std::max(a->size(), b->size()));
  for (std::size_t i = 0; i + 2 < result.size(); ++i) {
    const std::size_t back = result.size() - i;
    const ir::Dim left = back <= a->size() ? (*a)[a->size() - back] : ir::Dim(1);
    const ir::Dim right = back <= b->size() ? (*b)[b->size() - back] : ir::Dim(1);
    result[i] = broadcast(shared, left, right);
  }
  result[result.size() - 2] = (*a)[a->size() - 2];
  result[result.size() - 1] = b->back();
  return result;
}

OptionalShape infer_transpose(const NodeSpec& spec) {
  const auto shape = shape_of_input(spec, 0);
  const ir::Attribute* attribute = find_attribute(spec, "perm");
  const auto* permutation = attribute ? std::get_if<std::vector<std::int64_t>>(attribute) : nullptr;
  if (!shape || !permutation) return std::nullopt;
  Shape result;
  for (const std::int64_t axis : *permutation) result.push_back(shape->at(static_cast<std::size_t>(axis)));
  return result;
}

OptionalShape infer_unsqueeze(const NodeSpec& spec) {
  auto shape = shape_of_input(spec, 0);
  std::vector<std::int64_t> axes = constant_ints(spec, 1);
  if (!shape || axes.empty()) return std::nullopt;
  const auto count = static_cast<std::int64_t>(shape->size() + axes.size());
  for (std::int64_t& axis : axes) axis = axis < 0 ? axis + count : axis;
  std::ranges::sort(axes);
  for (const std::int64_t axis : axes) shape->insert(shape->begin() + axis, ir::Dim(1));
  return shape;
}

OptionalShape infer_squeeze(const NodeSpec& spec) {
  auto shape = shape_of_input(spec, 0);
  std::vector<std::int64_t> axes = constant_ints(spec, 1);
  if (!shape || axes.empty()) return std::nullopt;
  const auto count = static_cast<std::int64_t>(shape->size());
  for (std::int64_t& axis : axes) axis = axis < 0 ? axis + count : axis;
  std::ranges::sort(axes, std::greater());
  for (const std::int64_t axis : axes) shape->erase(shape->begin() + axis);
  return shape;
}

OptionalShape infer_gather(const NodeSpec& spec) {
  auto shape = shape_of_input(spec, 0);
  const auto indices = shape_of_input(spec, 1);
  if (!shape || !indices || shape->empty()) return std::nullopt;
  std::int64_t axis = int_attribute(spec, "axis", 0);
  if (axis < 0) axis += static_cast<std::int64_t>(shape->size());
  shape->erase(shape->begin() + axis);
  shape->insert(shape->begin() + axis, indices->begin(), indices->end());
  return shape;
}

OptionalShape infer_concat(Shared& shared, const NodeSpec& spec) {
  auto shape = shape_of_input(spec, 0);
  if (!shape) return std::nullopt;
  std::int64_t axis = int_attribute(spec, "axis", 0);
  if (axis < 0) axis += static_cast<std::int64_t>(shape->size());
  for (std::size_t i = 1; i < spec.inputs.size(); ++i) {
    const auto other = shape_of_input(spec, i);
    ir::Dim& total = shape->at(static_cast<std::size_t>(axis));
    total = other && other->size() == shape->size() ? total + (*other)[static_cast<std::size_t>(axis)]
                                                    : shared.fresh_symbol();
  }
  return shape;
}

OptionalShape infer_reduction(const NodeSpec& spec) {
  auto shape = shape_of_input(spec, 0);
  if (!shape) return std::nullopt;
  const bool keeps = int_attribute(spec, "keepdims", 1) != 0;
  std::vector<std::int64_t> axes = constant_ints(spec, 1);
  if (is_one_of(spec.op, {"ArgMax", "ArgMin"})) axes = {int_attribute(spec, "axis", 0)};
  const auto count = static_cast<std::int64_t>(shape->size());
  if (axes.empty()) {
    for (std::int64_t axis = 0; axis < count; ++axis) axes.push_back(axis);
  }
  for (std::int64_t& axis : axes) axis = axis < 0 ? axis + count : axis;
  std::ranges::sort(axes, std::greater());
  for (const std::int64_t axis : axes) {
    if (keeps) {
      shape->at(static_cast<std::size_t>(axis)) = 1;
    } else {
      shape->erase(shape->begin() + axis);
    }
  }
  return shape;
}

OptionalShape infer_shape_of_shape(Shared& shared, const NodeSpec& spec) {
  const std::int64_t start = int_attribute(spec, "start", 0);
  const ir::Attribute* end = find_attribute(spec, "end");
  const auto shape = shape_of_input(spec, 0);
  if (end != nullptr && start >= 0 && std::get<std::int64_t>(*end) > start)
    return Shape{std::get<std::int64_t>(*end) - start};
  return shape && start == 0 && end == nullptr ? Shape{static_cast<std::int64_t>(shape->size())}
                                               : Shape{shared.fresh_symbol()};
}

Shape fresh_shape(Shared& shared, std::size_t rank) {
  Shape shape;
  for (std::size_t i = 0; i < rank; ++i) shape.push_back(shared.fresh_symbol());
  return shape;
}

/// The first operand's shape with a new size on that axis.
OptionalShape infer_resized_axis(Shared& shared, const NodeSpec& spec, std::int64_t axis) {
  auto shape = shape_of_input(spec, 0);
  if (!shape) return std::nullopt;
  shape->at(static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(shape->size()) : axis)) =
      shared.fresh_symbol();
  return shape;
}

OptionalShape infer_compress(Shared& shared, const NodeSpec& spec) {
  const bool has_axis = find_attribute(spec, "axis") != nullptr;
  return has_axis ? infer_resized_axis(shared, spec, int_attribute(spec, "axis", 0)) : Shape{shared.fresh_symbol()};
}

OptionalShape infer_gather_nd(const NodeSpec& spec) {
  const auto data = shape_of_input(spec, 0);
  auto indices = shape_of_input(spec, 1);
  if (!data || !indices || indices->empty() || int_attribute(spec, "batch_dims", 0) != 0) return std::nullopt;
  const auto depth = indices->back().constant();
  if (!depth || *depth > static_cast<std::int64_t>(data->size())) return std::nullopt;
  indices->pop_back();
  indices->insert(indices->end(), data->begin() + *depth, data->end());
  return indices;
}

/// Operators that move elements about and whose sizes only values tell: the rank is known, if no more.
OptionalShape infer_moved(Shared& shared, const NodeSpec& spec) {
  const auto data = shape_of_input(spec, 0);
  if (spec.op == "NonZero" && data) return Shape{static_cast<std::int64_t>(data->size()), shared.fresh_symbol()};
  if (spec.op == "Compress") return infer_compress(shared, spec);
  if (spec.op == "GatherND") return infer_gather_nd(spec);
  if (spec.op == "TopK") return infer_resized_axis(shared, spec, int_attribute(spec, "axis", -1));
  const bool keeps_rank = is_one_of(spec.op, {"Slice", "Tile", "Pad"});
  if (keeps_rank) return data ? OptionalShape(fresh_shape(shared, data->size())) : std::nullopt;
  const bool takes_shape = is_one_of(spec.op, {"Reshape", "Expand", "ConstantOfShape"});
  const auto target = takes_shape ? shape_of_input(spec, spec.op == "ConstantOfShape" ? 0 : 1) : std::nullopt;
  if (!target || target->size() != 1 || !target->front().is_constant()) return std::nullopt;
  const auto rank = static_cast<std::size_t>(target->front().constant().value_or(0));
  return fresh_shape(shared, spec.op == "Expand" && data ? std::max(rank, data->size()) : rank);
}

bool is_elementwise(std::string_view op) {
  return gives_bool(op) || is_one_of(op, {"Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Sum", "Mean",
                                          "Where", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "PRelu"});
}

bool keeps_shape(std::string_view op) {
  return is_one_of(op, {"Cast",
                        "CastLike",
                        "Neg",
                        "Abs",
                        "Sign",
                        "Sqrt",
                        "Reciprocal",
                        "Exp",
                        "Log",
                        "Erf",
                        "Sin",
                        "Cos",
                        "Tan",
                        "Asin",
                        "Acos",
                        "Atan",
                        "Sinh",
                        "Cosh",
                        "Tanh",
                        "Asinh",
                        "Acosh",
                        "Atanh",
                        "Sigmoid",
                        "Relu",
                        "Gelu",
                        "Elu",
                        "Selu",
                        "Celu",
                        "LeakyRelu",
                        "Softplus",
                        "Softsign",
                        "HardSigmoid",
                        "HardSwish",
                        "Mish",
                        "Swish",
                        "Clip",
                        "Floor",
                        "Ceil",
                        "Round",
                        "Softmax",
                        "LogSoftmax",
                        "Hardmax",
                        "Identity",
                        "BitwiseNot",
                        "CumSum",
                        "Trilu",
                        "Dropout",
                        "LayerNormalization",
                        "RMSNormalization",
                        "InstanceNormalization",
                        "GroupNormalization",
                        "BatchNormalization",
                        "ThresholdedRelu",
                        "ScatterElements",
                        "ScatterND",
                        "EyeLike",
                        "RandomNormalLike",
                        "RandomUniformLike",
                        "Bernoulli",
                        "ReverseSequence"});
}

OptionalShape infer_shape(Shared& shared, const NodeSpec& spec) {
  const std::string_view op = spec.op;
  if (op == "MatMul") return infer_matmul(shared, spec);
  if (op == "Transpose") return infer_transpose(spec);
  if (op == "Unsqueeze") return infer_unsqueeze(spec);
  if (op == "Squeeze") return infer_squeeze(spec);
  if (op == "Gather") return infer_gather(spec);
  if (op == "GatherElements") return shape_of_input(spec, 1);
  if (op == "Concat") return infer_concat(shared, spec);
  if (op == "Shape") return infer_shape_of_shape(shared, spec);
  if (op == "Size") return Shape{};
  if (op == "Range") return Shape{shared.fresh_symbol()};
  if (op.starts_with("Reduce") || is_one_of(op, {"ArgMax", "ArgMin"})) return infer_reduction(spec);
  if (is_elementwise(op)) return broadcast_inputs(shared, spec);
  return keeps_shape(op) ? shape_of_input(spec, 0) : infer_moved(shared, spec);
}

}  // namespace

std::vector<ir::Type> infer_types(Shared& shared, const NodeSpec& spec) {
  if (!spec.domain.empty()) return {ir::Type::tensor(dtype_of_input(spec, 0))};
  if (is_one_of(spec.op,
                {"If", "Loop", "Scan", "SequenceConstruct", "SplitToSequence", "ConcatFromSequence", "SequenceAt"})) {
    return std::vector<ir::Type>(spec.outputs.size());
  }
  std::vector<ir::Type> types(spec.outputs.size(), ir::Type::tensor(infer_dtype(spec), infer_shape(shared, spec)));
  if (spec.op == "TopK" && types.size() == 2) types[1].dtype = DType::kInt64;
  if (spec.op == "Dropout" && types.size() == 2) types[1].dtype = DType::kBool;
  if (spec.op == "MaxPool" && types.size() == 2) types[1].dtype = DType::kInt64;
  if (spec.op == "Unique")
    std::for_each(types.begin() + 1, types.end(), [](ir::Type& type) { type.dtype = DType::kInt64; });
  return types;
}

}  // namespace exportguard::lowering
