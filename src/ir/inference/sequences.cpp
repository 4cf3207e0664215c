#include "exportguard/ir/inference.h"

// Sequences and optionals of tensors. A sequence has the shape that all of its tensors have.

namespace exportguard::ir {
namespace {

Type sequence(DType dtype, std::optional<Shape> shape) {
  return {Type::Kind::kSequence, dtype, std::move(shape), false, std::nullopt};
}

Type element_of(const InferenceContext& ctx, std::size_t i) {
  const Type* type = ctx.find_type(i);
  return type && type->kind == Type::Kind::kSequence ? Type::tensor(type->dtype, type->shape) : Type{};
}

void infer_construct(InferenceContext& ctx) {
  Type common = ctx.has(0) ? *ctx.find_type(0) : Type{};
  for (std::size_t i = 1; i < ctx.input_count(); ++i) {
    if (ctx.has(i)) common = merged(ctx.model(), common, *ctx.find_type(i));
  }
  ctx.set(0, sequence(common.dtype, common.shape));
}

void infer_empty(InferenceContext& ctx) {
  ctx.set(0, sequence(ctx.dtype_attribute("dtype", DType::kFloat32), std::nullopt));
}

void infer_at(InferenceContext& ctx) { ctx.set(0, element_of(ctx, 0)); }

void infer_erase(InferenceContext& ctx) { ctx.set(0, ctx.has(0) ? *ctx.find_type(0) : Type{}); }

void infer_insert(InferenceContext& ctx) {
  if (!ctx.has(0) || !ctx.has(1)) return;
  const Type element = element_of(ctx, 0);
  const Type& inserted = *ctx.find_type(1);
  const Type common = element.shape ? merged(ctx.model(), element, inserted) : Type::tensor(inserted.dtype);
  ctx.set(0, sequence(common.dtype, common.shape));
}

void infer_length(InferenceContext& ctx) { ctx.set(0, DType::kInt64, Shape{}); }

void infer_split_to_sequence(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  if (!shape) return ctx.set(0, sequence(ctx.dtype(0), std::nullopt));
  const std::size_t axis = ctx.axis(ctx.integer("axis", 0), shape->size());
  const bool drops = !ctx.has(1) && ctx.integer("keepdims", 1) == 0;
  (*shape)[axis] = ctx.has(1) ? ctx.fresh() : Dim(1);
  if (drops) shape->erase(shape->begin() + static_cast<std::ptrdiff_t>(axis));
  ctx.set(0, sequence(ctx.dtype(0), std::move(shape)));
}

void infer_concat_from_sequence(InferenceContext& ctx) {
  Type element = element_of(ctx, 0);
  if (!element.shape) return ctx.set(0, std::move(element));
  Shape& shape = *element.shape;
  const std::int64_t axis = ctx.integer("axis", 0);
  if (ctx.integer("new_axis", 0) != 0) {
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(ctx.axis(axis, shape.size() + 1)), ctx.fresh());
  } else {
    shape[ctx.axis(axis, shape.size())] = ctx.fresh();
  }
  ctx.set(0, std::move(element));
}

/// The type of an element that is not there is an attribute.
void infer_optional(InferenceContext& ctx) {
  const Attribute* attribute = ctx.find_attribute("type");
  const auto* declared = attribute ? std::get_if<Type>(attribute) : nullptr;
  Type type = ctx.has(0) ? *ctx.find_type(0) : declared ? *declared : Type{};
  const bool is_optional = type.kind == Type::Kind::kOptional || type.kind == Type::Kind::kOptionalSequence;
  type.kind = type.kind == Type::Kind::kSequence ? Type::Kind::kOptionalSequence : Type::Kind::kOptional;
  ctx.set(0, is_optional ? Type{} : std::move(type));
}

void infer_optional_element(InferenceContext& ctx) {
  Type type = ctx.has(0) ? *ctx.find_type(0) : Type{};
  if (type.kind == Type::Kind::kOptional) type.kind = Type::Kind::kTensor;
  if (type.kind == Type::Kind::kOptionalSequence) type.kind = Type::Kind::kSequence;
  ctx.set(0, std::move(type));
}

void infer_has_element(InferenceContext& ctx) { ctx.set(0, DType::kBool, Shape{}); }

}  // namespace

void populate_sequences(InferenceTable& table) {
  table.add({"SequenceConstruct"}, infer_construct);
  table.add({"SequenceEmpty"}, infer_empty);
  table.add({"SequenceAt"}, infer_at);
  table.add({"SequenceErase"}, infer_erase);
  table.add({"SequenceInsert"}, infer_insert);
  table.add({"SequenceLength"}, infer_length);
  table.add({"SplitToSequence"}, infer_split_to_sequence);
  table.add({"ConcatFromSequence"}, infer_concat_from_sequence);
  table.add({"Optional"}, infer_optional);
  table.add({"OptionalGetElement"}, infer_optional_element);
  table.add({"OptionalHasElement"}, infer_has_element);
}

}  // namespace exportguard::ir
