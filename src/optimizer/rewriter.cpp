#include "exportguard/optimizer/rewriter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace exportguard::optimizer {
namespace {

/// Small constants go by their content; the same content has the same name.
constexpr std::int64_t kMostNamed = 8;

std::string content_name(const ir::Tensor& tensor, std::string_view wanted) {
  if (!is_integral(tensor.dtype()) || tensor.numel() > kMostNamed) return std::string(wanted);
  if (tensor.shape().empty()) return fmt::format("constant.{}.{}", name(tensor.dtype()), tensor.to_ints().front());
  return fmt::format("constant.{}[{}]", name(tensor.dtype()), fmt::join(tensor.to_ints(), ","));
}

/// Under that name, or one with a number behind it if another tensor has the name.
Value& add_under_name(ir::Graph& graph, const std::string& wanted, ir::Tensor tensor) {
  std::string name = wanted;
  for (std::size_t i = 1;; ++i) {
    Value* found = graph.find_initializer(name);
    if (found == nullptr) return graph.add_initializer(std::move(name), std::move(tensor));
    if (*found->initializer() == tensor) return *found;
    name = fmt::format("{}.{}", wanted, i);
  }
}

}  // namespace

ir::Graph& Rewriter::main_graph() const {
  ir::Graph* graph = &root_.graph();
  while (graph->parent() != nullptr) graph = &graph->parent()->graph();
  return *graph;
}

ir::Node& Rewriter::node(ir::NodeSpec spec) {
  spec.source = root_.source();
  ir::Node& made = root_.graph().insert_before(root_, std::move(spec));
  made_.push_back(&made);
  return made;
}

std::vector<Value*> Rewriter::op_many(std::string_view op, std::vector<Value*> inputs, ir::AttributeList attributes,
                                      std::vector<ir::Type> types) {
  ir::Node& made = node({.op = std::string(op),
                         .inputs = std::move(inputs),
                         .attributes = std::move(attributes).take(),
                         .outputs = std::move(types)});
  std::vector<Value*> values;
  for (std::size_t i = 0; i < made.output_count(); ++i) values.push_back(&made.output(i));
  return values;
}

Value& Rewriter::op(std::string_view op, std::vector<Value*> inputs, ir::AttributeList attributes, ir::Type type) {
  return *op_many(op, std::move(inputs), std::move(attributes), {std::move(type)}).front();
}

Value& Rewriter::constant(ir::Tensor tensor, std::string_view wanted) {
  const std::string name = content_name(tensor, wanted);
  return add_under_name(main_graph(), name, std::move(tensor));
}

Value& Rewriter::ints(const std::vector<std::int64_t>& values) { return constant(ir::Tensor::ints(values)); }

Value& Rewriter::weight(const std::string& wanted, ir::Tensor tensor) {
  std::string name = wanted;
  for (std::size_t i = 1;; ++i) {
    Value* found = main_graph().find_initializer(name);
    if (found == nullptr) return main_graph().add_initializer(std::move(name), std::move(tensor));
    if (found->initializer()->identity() == tensor.identity()) return *found;
    name = fmt::format("{}.{}", wanted, i);
  }
}

Value& Rewriter::view_of(const Value& initializer, std::string_view suffix, ir::Tensor tensor) {
  const std::string wanted = fmt::format("{}.{}", initializer.name(), suffix);
  ir::Graph& graph = initializer.graph();
  Value* found = graph.find_initializer(wanted);
  if (found == nullptr) return graph.add_initializer(wanted, std::move(tensor));
  if (found->initializer()->identity() == tensor.identity()) return *found;
  return view_of(*found, suffix, std::move(tensor));
}

Value& Rewriter::size(Value& value, std::size_t axis) {
  const ir::Dim wanted = shape_of(value)->at(axis);
  if (const auto number = wanted.constant()) return ints({*number});
  Value* from = &value;
  auto at = static_cast<std::int64_t>(axis);
  for (const auto& input : main_graph().inputs()) {
    const auto& shape = shape_of(*input);
    for (std::size_t i = 0; from == &value && shape && i < shape->size(); ++i) {
      if ((*shape)[i] != wanted) continue;
      from = input.get();
      at = static_cast<std::int64_t>(i);
    }
  }
  return op("Shape", {from}, {{"start", at}, {"end", at + 1}}, ir::Type::tensor(DType::kInt64, ir::Shape{1}));
}

Value& Rewriter::reshape(Value& value, const ir::Shape& shape) {
  std::vector<std::int64_t> sizes;
  for (const ir::Dim& dim : shape) sizes.push_back(dim.constant().value_or(0));
  return op("Reshape", {&value, &ints(sizes)}, {}, ir::Type::tensor(value.dtype(), shape));
}

Value& Rewriter::transpose(Value& value, const std::vector<std::int64_t>& permutation) {
  ir::Shape shape;
  for (const std::int64_t axis : permutation) shape.push_back((*shape_of(value))[static_cast<std::size_t>(axis)]);
  return op("Transpose", {&value}, {{"perm", permutation}}, ir::Type::tensor(value.dtype(), std::move(shape)));
}

void Rewriter::replace(Value& old, Value& by) {
  for (ir::Use* use : old.uses()) changed_.push_back(&use->user());
  if (old.producer() != nullptr) replaced_.push_back(old.producer());
  if (by.name().empty() && by.producer() != nullptr) by.set_name(old.name());
  const bool is_told = by.dtype() != DType::kUndefined && (by.type().shape || !old.type().shape);
  if (!is_told && by.type().kind == old.type().kind && old.dtype() != DType::kUndefined) by.set_type(old.type());
  old.replace_all_uses_with(by);
}

}  // namespace exportguard::optimizer
