#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "exportguard/lowering/context.h"
#include "lowering/kernels.h"
#include "lowering/shared.h"

namespace exportguard::lowering {

ir::Node& LoweringContext::emit(ir::NodeSpec spec) {
  spec.source = node_->source();
  spec.outputs.resize(std::max<std::size_t>(spec.outputs.size(), 1));
  const std::vector<ir::Type> types = infer_types(shared_, spec);
  std::copy_n(types.begin(), std::min(types.size(), spec.outputs.size()), spec.outputs.begin());
  return before_ ? graph_->insert_before(*before_, std::move(spec)) : graph_->append(std::move(spec));
}

Value* LoweringContext::op(std::string_view op, const std::vector<Value*>& inputs, ir::AttributeList attributes) {
  return op_many(op, inputs, 1, std::move(attributes)).front();
}

Value* LoweringContext::op(std::string_view op, std::initializer_list<Value*> inputs, ir::AttributeList attributes) {
  return op_many(op, std::vector<Value*>(inputs), 1, std::move(attributes)).front();
}

std::vector<Value*> LoweringContext::op_many(std::string_view op, const std::vector<Value*>& inputs,
                                             std::size_t outputs, ir::AttributeList attributes) {
  ir::NodeSpec spec;
  spec.op = op;
  spec.inputs = inputs;
  spec.attributes = std::move(attributes).take();
  spec.outputs.resize(outputs);
  ir::Node& made = emit(std::move(spec));
  std::vector<Value*> values;
  for (std::size_t i = 0; i < outputs; ++i) values.push_back(&made.output(i));
  return values;
}

Value* LoweringContext::op_in(std::string_view domain, std::string_view op, const std::vector<Value*>& inputs,
                              ir::AttributeList attributes) {
  shared_.model.opsets.try_emplace(std::string(domain), 1);
  ir::NodeSpec spec;
  spec.domain = domain;
  spec.op = op;
  spec.inputs = inputs;
  spec.attributes = std::move(attributes).take();
  return &emit(std::move(spec)).output();
}

// ------------------------------------------------------------------------------------------------ constants

Value* LoweringContext::constant(ir::Tensor tensor) {
  std::string name = fmt::format("constant.{}", shared_.fresh_constants++);
  return &shared_.model.graph->add_initializer(std::move(name), std::move(tensor));
}

Value* LoweringContext::constant(std::int64_t value, DType dtype) {
  const std::string key = fmt::format("{}.{}", name(dtype), value);
  Value*& made = shared_.constants[key];
  if (made == nullptr)
    made = &shared_.model.graph->add_initializer("constant." + key, ir::Tensor::scalar(value, dtype));
  return made;
}

Value* LoweringContext::constant(double value, DType dtype) {
  // A float dtype takes an integral value under the key of the integer; -0.0, NaN and inf have spellings of their own.
  const bool is_whole =
      std::nearbyint(value) == value && std::abs(value) < 1e15 && !(value == 0 && std::signbit(value));
  if (is_whole) return constant(static_cast<std::int64_t>(value), dtype);
  const std::string key = fmt::format("{}.{}", name(dtype), value);
  Value*& made = shared_.constants[key];
  if (made == nullptr)
    made = &shared_.model.graph->add_initializer("constant." + key, ir::Tensor::scalar(value, dtype));
  return made;
}

Value* LoweringContext::ints(const std::vector<std::int64_t>& values) {
  const std::string key = fmt::format("i64[{}]", fmt::join(values, ","));
  Value*& made = shared_.constants[key];
  if (made == nullptr) {
    made = &shared_.model.graph->add_initializer("constant." + key, ir::Tensor::ints(values));
    if (values.size() == 1) shared_.expressions.emplace(made, values.front());
  }
  return made;
}

Value* LoweringContext::number_like(double value, const Value* like) { return constant(value, like->dtype()); }

const ir::Tensor* LoweringContext::find_constant(const Value* value) const {
  if (value->initializer() != nullptr) return value->initializer();
  const ir::Node* producer = value->producer();
  if (producer == nullptr || !producer->is("", "Constant")) return nullptr;
  const ir::Attribute* content = producer->find_attribute("value");
  return content ? std::get_if<ir::Tensor>(content) : nullptr;
}

// ------------------------------------------------------------------------------------------------ plain operators

Value* LoweringContext::cast(Value* value, DType dtype) {
  if (value->dtype() == dtype || dtype == DType::kUndefined) return value;
  return op("Cast", {value}, {{"to", static_cast<std::int64_t>(dtype)}});
}

Value* LoweringContext::widened(Value* value) {
  const bool is_narrow = value->dtype() == DType::kFloat16 || value->dtype() == DType::kBFloat16;
  return is_narrow ? cast(value, DType::kFloat32) : value;
}

Value* LoweringContext::where(Value* condition, Value* a, Value* b) {
  const DType dtype = kernel_dtype("Where", a->dtype());
  return cast(op("Where", {condition, cast(a, dtype), cast(b, dtype)}), a->dtype());
}

Value* LoweringContext::gather(Value* value, Value* indices, std::int64_t axis) {
  return op("Gather", {value, indices}, {{"axis", axis}});
}

Value* LoweringContext::concat(const std::vector<Value*>& values, std::int64_t axis) {
  return values.size() == 1 ? values.front() : op("Concat", values, {{"axis", axis}});
}

Value* LoweringContext::transpose(Value* value, const std::vector<std::int64_t>& permutation) {
  const bool moves = !std::ranges::is_sorted(permutation);
  return moves ? op("Transpose", {value}, {{"perm", permutation}}) : value;
}

Value* LoweringContext::swap_axes(Value* value, std::int64_t a, std::int64_t b) {
  const auto count = static_cast<std::int64_t>(rank(value));
  if (count == 0) return value;
  std::vector<std::int64_t> permutation(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < permutation.size(); ++i) permutation[i] = static_cast<std::int64_t>(i);
  std::swap(permutation.at(static_cast<std::size_t>(a < 0 ? a + count : a)),
            permutation.at(static_cast<std::size_t>(b < 0 ? b + count : b)));
  return transpose(value, permutation);
}

Value* LoweringContext::unsqueeze(Value* value, const std::vector<std::int64_t>& axes) {
  return axes.empty() ? value : op("Unsqueeze", {value, ints(axes)});
}

Value* LoweringContext::squeeze(Value* value, const std::vector<std::int64_t>& axes) {
  return axes.empty() ? value : op("Squeeze", {value, ints(axes)});
}

namespace {

/// onnxruntime takes a negative axis of an empty tensor for one out of range.
std::vector<std::int64_t> counted_from_start(const Value* value, std::vector<std::int64_t> axes) {
  const auto rank = value->type().rank();
  for (std::int64_t& axis : axes) {
    if (rank && axis < 0) axis += static_cast<std::int64_t>(*rank);
  }
  return axes;
}

}  // namespace

Value* LoweringContext::reduce(std::string_view op, Value* value, const std::vector<std::int64_t>& axes, bool keepdim) {
  std::vector<Value*> inputs = {value};
  if (!axes.empty()) inputs.push_back(ints(counted_from_start(value, axes)));
  return this->op(op, inputs, {{"keepdims", static_cast<std::int64_t>(keepdim)}});
}

// ------------------------------------------------------------------------------------------------ nested graphs

ir::Graph& LoweringContext::body(std::string_view name) {
  if (node_->find_attribute(name) == nullptr) fail(fmt::format("the body {} is missing", name));
  return node_->subgraph(name);
}

std::vector<Value*> LoweringContext::inlined(const ir::Graph& graph, const std::vector<Value*>& arguments) {
  ir::Node* previous = before_ ? before_->previous() : graph_->last();
  ir::NodeSpec spec;
  spec.op = "Identity";  // reads the outputs while the nodes that give them are replaced
  spec.inputs = graph_->splice(graph, arguments, before_);
  ir::Node& reader = before_ ? graph_->insert_before(*before_, std::move(spec)) : graph_->append(std::move(spec));
  lower_nodes(shared_, previous ? *previous->next() : *graph_->first(), reader);
  std::vector<Value*> results;
  for (std::size_t i = 0; i < reader.input_count(); ++i) results.push_back(reader.find_input(i));
  graph_->erase(reader);
  return results;
}

void LoweringContext::lower_nested(ir::Graph& graph) { lower_graph(shared_, graph); }

struct LoweringContext::Inside::State {
  ir::Graph* graph;
  ir::Node* before;
};

LoweringContext::Inside::Inside(LoweringContext& ctx, ir::Graph& graph)
    : ctx_(ctx), state_(std::make_unique<State>(State{ctx.graph_, ctx.before_})) {
  ctx.graph_ = &graph;
  ctx.before_ = nullptr;
  ctx.shared_.enter(graph);
}

LoweringContext::Inside::~Inside() {
  ctx_.shared_.leave();
  ctx_.graph_ = state_->graph;
  ctx_.before_ = state_->before;
}

}  // namespace exportguard::lowering
