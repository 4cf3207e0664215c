#include "exportguard/ir/builder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "exportguard/common/errors.h"
#include "ir/builder_memory.h"

namespace exportguard::ir {

// ------------------------------------------------------------------------------------------------ memory

namespace {

Graph& outermost_graph(Graph& graph) {
  Graph* root = &graph;
  while (root->parent() != nullptr) root = &root->parent()->graph();
  return *root;
}

Function* find_function_of(Model& model, const Graph& body) {
  const auto found = std::ranges::find_if(model.functions, [&](const Function& f) { return f.body.get() == &body; });
  return found == model.functions.end() ? nullptr : &*found;
}

/// The bits of an integer that a dtype has room for, as torch converts the number beside a tensor: 255 is -1 in int8.
std::int64_t lowest_bits(std::int64_t value, DType dtype) {
  const int bits = bit_width(dtype);
  if (bits >= 64) return value;
  const std::int64_t found = value & ((std::int64_t{1} << bits) - 1);
  const bool is_negative = !is_unsigned(dtype) && (found >> (bits - 1)) != 0;
  return is_negative ? found - (std::int64_t{1} << bits) : found;
}

}  // namespace

Builder::Memory::Memory(Model& owner, Graph& graph) : model(owner), start_(&graph) {}

Graph& Builder::Memory::home() const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (scope->is_isolated) return *scope->graph;
  }
  return outermost_graph(scopes_.empty() ? *start_ : *scopes_.front().graph);
}

std::map<std::string, std::int64_t>& Builder::Memory::opsets() const {
  const Graph& around = home();
  Function* function = &around == model.graph.get() ? nullptr : find_function_of(model, around);
  return function && !function->opsets.empty() ? function->opsets : model.opsets;
}

int Builder::Memory::opset() const { return scopes_.empty() ? declared_opset() : scopes_.back().opset; }

int Builder::Memory::declared_opset() const {
  const auto& versions = opsets();
  const auto version = versions.find("");
  return version == versions.end() ? 0 : static_cast<int>(version->second);
}

std::vector<BuilderScope>& Builder::Memory::scopes() {
  if (is_opened_) return scopes_;
  is_opened_ = true;
  std::vector<Graph*> around = {start_};
  while (around.back()->parent() != nullptr) around.push_back(&around.back()->parent()->graph());
  const bool is_main = around.back() == model.graph.get();
  for (auto graph = around.rbegin(); graph != around.rend(); ++graph) {
    enter(**graph, graph == around.rbegin() && !is_main);
  }
  return scopes_;
}

void Builder::Memory::enter(Graph& graph, bool is_isolated) {
  scopes().push_back({.graph = &graph, .is_isolated = is_isolated});
  scope().opset = scopes_.size() > 1 && !is_isolated ? scopes_[scopes_.size() - 2].opset : declared_opset();
  for (const auto& input : graph.inputs()) note_sizes(*input, input->type());
}

void Builder::Memory::note_sizes(Value& value, const Type& type) {
  if (type.is_scalar) {
    if (type.value && !type.value->is_constant()) scope().scalar_origins.try_emplace(*type.value, &value);
    return;
  }
  if (!type.shape || type.kind != Type::Kind::kTensor) return;
  for (std::size_t axis = 0; axis < type.shape->size(); ++axis) {
    const Dim& dim = (*type.shape)[axis];
    if (!dim.is_constant()) scope().origins.try_emplace(dim, &value, static_cast<std::int64_t>(axis));
  }
}

const SymExpr* Builder::Memory::find_expression(const Value& value) const {
  const Elements* known = elements.find(value);
  return known && known->size() == 1 ? &known->front() : nullptr;
}

std::optional<SymExpr> Builder::Memory::expression_of(const Size& size) const {
  if (size.number()) return SymExpr(*size.number());
  const SymExpr* expression = find_expression(*size.value());
  return expression ? std::optional(*expression) : std::nullopt;
}

// ------------------------------------------------------------------------------------------------ places

Builder::Builder(Model& model) : Builder(model, Place{model.graph.get(), nullptr, nullptr}) {}

Builder::Builder(Model& model, Node& where) : Builder(model, Place{&where.graph(), &where, where.source()}) {}

Builder::Builder(Model& model, Function& function) : Builder(model, Place{function.body.get(), nullptr, nullptr}) {}

Builder::Builder(Model& model, const Place& place)
    : own_memory_(std::make_unique<Memory>(model, *place.graph)), memory_(own_memory_.get()), place_(place) {}

Builder::Builder(Memory& memory, const Place& place) : memory_(&memory), place_(place) {}

Builder::~Builder() = default;

Model& Builder::model() const { return memory_->model; }

int Builder::opset() const { return memory_->opset(); }

void Builder::fail(const std::string& reason) const {
  const std::string where = place_.source ? place_.source->where() : std::string();
  throw GraphError(where.empty() ? reason : fmt::format("{}: {}", where, reason));
}

void Builder::require(bool condition, const std::string& reason) const {
  if (!condition) fail(reason);
}

Builder::Inside::Inside(Builder& builder, Graph& graph) : builder_(builder), outside_(builder.place_) {
  builder.place_.graph = &graph;
  builder.place_.before = nullptr;
  builder.memory_->enter(graph);
}

Builder::Inside::Inside(Builder& builder, Function& function) : builder_(builder), outside_(builder.place_) {
  builder.place_.graph = function.body.get();
  builder.place_.before = nullptr;
  builder.memory_->enter(*function.body, true);
}

Builder::Inside::~Inside() {
  builder_.memory_->leave();
  builder_.place_ = outside_;
}

// ------------------------------------------------------------------------------------------------ facts

const Shape& Builder::shape(const Value* value) const {
  if (!value->type().shape) fail(fmt::format("the rank of {} must be known", value->name()));
  return *value->type().shape;
}

std::size_t Builder::rank(const Value* value) const { return shape(value).size(); }

Dim Builder::size(const Value* value, std::int64_t axis) const {
  const Shape& sizes = shape(value);
  const auto count = static_cast<std::int64_t>(sizes.size());
  if (axis < -count || axis >= count) fail(fmt::format("axis {} is out of range for {}", axis, value->type().str()));
  return sizes[static_cast<std::size_t>(axis < 0 ? axis + count : axis)];
}

const Elements* Builder::find_elements(const Value* value) const { return memory_->elements.find(*value); }

const Tensor* Builder::find_constant(const Value* value) const { return constant_of(*value); }

void Builder::note_sizes(Value& value, const Type& type) { memory_->note_sizes(value, type); }

// ------------------------------------------------------------------------------------------------ nodes

Node& Builder::emit(NodeSpec spec) {
  spec.source = place_.source;
  InferredTypes inferred = infer({spec.domain, spec.op, spec.inputs, spec.attributes, spec.outputs.size(), spec.source},
                                 {memory_->model, memory_->elements, opset()});
  spec.outputs = std::move(inferred.types);
  Node& made = place_.before ? place_.graph->insert_before(*place_.before, std::move(spec))
                             : place_.graph->append(std::move(spec));
  if (inferred.elements) memory_->elements.set(made.output(), std::move(*inferred.elements));
  return made;
}

Value* Builder::op(std::string_view op, const std::vector<Value*>& inputs, AttributeList attributes) {
  return op_many(op, inputs, 1, std::move(attributes)).front();
}

Value* Builder::op(std::string_view op, std::initializer_list<Value*> inputs, AttributeList attributes) {
  return op_many(op, std::vector<Value*>(inputs), 1, std::move(attributes)).front();
}

std::vector<Value*> Builder::op_many(std::string_view op, const std::vector<Value*>& inputs, std::size_t outputs,
                                     AttributeList attributes) {
  return op_many_in("", op, inputs, outputs, std::move(attributes));
}

Value* Builder::op_in(std::string_view domain, std::string_view op, const std::vector<Value*>& inputs,
                      AttributeList attributes) {
  return op_many_in(domain, op, inputs, 1, std::move(attributes)).front();
}

std::vector<Value*> Builder::op_many_in(std::string_view domain, std::string_view op, const std::vector<Value*>& inputs,
                                        std::size_t outputs, AttributeList attributes) {
  NodeSpec spec;
  spec.domain = domain;
  spec.op = op;
  spec.inputs = inputs;
  spec.attributes = std::move(attributes).take();
  spec.outputs.resize(outputs);
  Node& made = emit(std::move(spec));
  if (!domain.empty()) memory_->opsets().try_emplace(std::string(domain), 1);
  std::vector<Value*> values;
  for (std::size_t i = 0; i < outputs; ++i) values.push_back(&made.output(i));
  return values;
}

void Builder::infer_again(Node& node) {
  std::vector<Value*> inputs;
  for (std::size_t i = 0; i < node.input_count(); ++i) inputs.push_back(node.find_input(i));
  InferredTypes inferred =
      infer({node.domain(), node.op(), inputs, node.attributes(), node.output_count(), node.source()},
            {memory_->model, memory_->elements, opset()});
  for (std::size_t i = 0; i < node.output_count(); ++i) node.output(i).set_type(std::move(inferred.types[i]));
}

// ------------------------------------------------------------------------------------------------ constants

Value* Builder::constant(Tensor tensor) {
  Graph& home = memory_->home();
  std::string name;
  do name = fmt::format("constant.{}", memory_->fresh_constants++);
  while (home.find_initializer(name) != nullptr);
  return &home.add_initializer(std::move(name), std::move(tensor));
}

/// An initializer of that content under the name that tells it, made before by another builder or now.
Value* Builder::shared_constant(const std::string& key, const std::function<Tensor()>& make) {
  Value*& made = memory_->constants()[key];
  if (made != nullptr) return made;
  Tensor tensor = make();
  const std::string name = "constant." + key;
  Graph& home = memory_->home();
  Value* known = home.find_initializer(name);
  if (known == nullptr) return made = &home.add_initializer(name, std::move(tensor));
  return made = *known->initializer() == tensor ? known : constant(std::move(tensor));
}

Value* Builder::constant(std::int64_t value, DType dtype) {
  if (is_integral(dtype)) value = lowest_bits(value, dtype);
  return shared_constant(fmt::format("{}.{}", name(dtype), value), [&] { return Tensor::scalar(value, dtype); });
}

Value* Builder::constant(double value, DType dtype) {
  // A float dtype takes an integral value under the key of the integer; -0.0, NaN and inf have spellings of their own.
  const bool is_whole =
      std::nearbyint(value) == value && std::abs(value) < 1e15 && !(value == 0 && std::signbit(value));
  if (is_whole) return constant(static_cast<std::int64_t>(value), dtype);
  return shared_constant(fmt::format("{}.{}", name(dtype), value), [&] { return Tensor::scalar(value, dtype); });
}

Value* Builder::ints(const std::vector<std::int64_t>& values) {
  return shared_constant(fmt::format("i64[{}]", fmt::join(values, ",")), [&] { return Tensor::ints(values); });
}

Value* Builder::number_like(double value, const Value* like) { return constant(value, like->dtype()); }

// ------------------------------------------------------------------------------------------------ plain operators

Value* Builder::cast(Value* value, DType dtype) {
  if (value->dtype() == dtype || dtype == DType::kUndefined) return value;
  return op("Cast", {value}, {{"to", static_cast<std::int64_t>(dtype)}});
}

Value* Builder::widened(Value* value) {
  const bool is_narrow = value->dtype() == DType::kFloat16 || value->dtype() == DType::kBFloat16;
  return is_narrow ? cast(value, DType::kFloat32) : value;
}

Value* Builder::gather(Value* value, Value* indices, std::int64_t axis) {
  return op("Gather", {value, indices}, {{"axis", axis}});
}

Value* Builder::concat(const std::vector<Value*>& values, std::int64_t axis) {
  return values.size() == 1 ? values.front() : op("Concat", values, {{"axis", axis}});
}

Value* Builder::transpose(Value* value, const std::vector<std::int64_t>& permutation) {
  const bool moves = !std::ranges::is_sorted(permutation);
  return moves ? op("Transpose", {value}, {{"perm", permutation}}) : value;
}

Value* Builder::swap_axes(Value* value, std::int64_t a, std::int64_t b) {
  const auto count = static_cast<std::int64_t>(rank(value));
  if (count == 0) return value;
  std::vector<std::int64_t> permutation(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < permutation.size(); ++i) permutation[i] = static_cast<std::int64_t>(i);
  std::swap(permutation.at(static_cast<std::size_t>(a < 0 ? a + count : a)),
            permutation.at(static_cast<std::size_t>(b < 0 ? b + count : b)));
  return transpose(value, permutation);
}

Value* Builder::unsqueeze(Value* value, const std::vector<std::int64_t>& axes) {
  return axes.empty() ? value : op("Unsqueeze", {value, ints(axes)});
}

Value* Builder::squeeze(Value* value, const std::vector<std::int64_t>& axes) {
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

Value* Builder::reduce(std::string_view op, Value* value, const std::vector<std::int64_t>& axes, bool keepdim) {
  std::vector<Value*> inputs = {value};
  if (!axes.empty()) inputs.push_back(ints(counted_from_start(value, axes)));
  return this->op(op, inputs, {{"keepdims", static_cast<std::int64_t>(keepdim)}});
}

}  // namespace exportguard::ir
