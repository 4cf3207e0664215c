#include <fmt/format.h>

#include "exportguard/ir/inference.h"

// Types come from the bodies. A body that is not filled yet says nothing.

namespace exportguard::ir {
namespace {

const Type* find_output_type(const Graph& body, std::size_t i) {
  const Value* value = i < body.output_count() ? body.find_output(i) : nullptr;
  return value ? &value->type() : nullptr;
}

void infer_branches(InferenceContext& ctx) {
  const Graph* on_true = ctx.find_graph("then_branch");
  const Graph* on_false = ctx.find_graph("else_branch");
  for (std::size_t i = 0; i < ctx.output_count(); ++i) {
    const Type* a = on_true ? find_output_type(*on_true, i) : nullptr;
    const Type* b = on_false ? find_output_type(*on_false, i) : nullptr;
    if (a == nullptr || b == nullptr) continue;
    if (a->dtype != b->dtype && a->dtype != DType::kUndefined && b->dtype != DType::kUndefined) {
      ctx.fail(fmt::format("output {} of both branches must have one dtype, got {} and {}", i, a->str(), b->str()));
    }
    ctx.set(i, merged(ctx.model(), *a, *b));
  }
}

/// What is handed from step to step: before the first one, and after each.
Type carried(const InferenceContext& ctx, const Type* initial, const Type* after) {
  if (initial == nullptr || after == nullptr) return {};
  return merged(ctx.model(), *initial, *after);
}

/// One element of each step along a new axis.
Type collected(const InferenceContext& ctx, const Type* element, std::int64_t axis, const Dim& steps) {
  if (element == nullptr) return {};
  if (!element->shape) return Type::tensor(element->dtype);
  Shape shape = *element->shape;
  const std::size_t at = ctx.axis(axis, shape.size() + 1);
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(at), steps);
  return Type::tensor(element->dtype, std::move(shape));
}

/// Loop(count, condition, state…): the body's outputs are the condition, the state, and what is collected.
void infer_loop(InferenceContext& ctx) {
  const Graph* body = ctx.find_graph("body");
  if (body == nullptr || body->output_count() == 0) return;
  const std::size_t state = ctx.input_count() < 2 ? 0 : ctx.input_count() - 2;
  const Dim steps = ctx.fresh();
  for (std::size_t i = 0; i < ctx.output_count(); ++i) {
    const Type* after = find_output_type(*body, i + 1);
    ctx.set(i, i < state ? carried(ctx, ctx.find_type(i + 2), after) : collected(ctx, after, 0, steps));
  }
}

std::int64_t entry(const std::vector<std::int64_t>* list, std::size_t i) {
  return list && i < list->size() ? (*list)[i] : 0;
}

/// Scan(state…, tensors…): a step sees one slice of each tensor.
void infer_scan(InferenceContext& ctx) {
  const Graph* body = ctx.find_graph("body");
  if (body == nullptr || body->output_count() == 0) return;
  const auto cut = static_cast<std::size_t>(ctx.integer("num_scan_inputs", 0));
  if (cut < 1 || cut > ctx.input_count()) {
    ctx.fail(fmt::format("num_scan_inputs must be between 1 and {}, got {}", ctx.input_count(), cut));
  }

  const std::size_t state = ctx.input_count() - cut;
  std::optional<Dim> steps;
  for (std::size_t i = 0; i < cut; ++i) {
    const auto shape = ctx.shape(state + i);
    if (!shape) continue;
    const Dim& size = (*shape)[ctx.axis(entry(ctx.find_integers("scan_input_axes"), i), shape->size())];
    steps = steps ? ctx.same(*steps, size) : size;
  }

  for (std::size_t i = 0; i < ctx.output_count(); ++i) {
    const Type* after = find_output_type(*body, i);
    const std::int64_t axis = i < state ? 0 : entry(ctx.find_integers("scan_output_axes"), i - state);
    ctx.set(i, i < state ? carried(ctx, ctx.find_type(i), after)
                         : collected(ctx, after, axis, steps ? *steps : ctx.fresh()));
  }
}

void infer_sequence_map(InferenceContext& ctx) {
  const Graph* body = ctx.find_graph("body");
  for (std::size_t i = 0; body && i < ctx.output_count(); ++i) {
    const Type* element = find_output_type(*body, i);
    if (element == nullptr) continue;
    Type type = *element;
    type.kind = Type::Kind::kSequence;
    if (type.shape) type.shape = ctx.fresh_shape(type.shape->size());
    ctx.set(i, std::move(type));
  }
}

}  // namespace

void populate_control_flow(InferenceTable& table) {
  table.add({"If"}, infer_branches);
  table.add({"Loop"}, infer_loop);
  table.add({"Scan"}, infer_scan);
  table.add({"SequenceMap"}, infer_sequence_map);
}

}  // namespace exportguard::ir
