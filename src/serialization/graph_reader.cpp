#include "serialization/graph_reader.h"

#include <fmt/format.h>

#include <charconv>
#include <type_traits>
#include <unordered_set>

#include "exportguard/common/errors.h"
#include "exportguard/ir/default_input.h"
#include "serialization/proto_values.h"

namespace exportguard::serialization {
namespace {

// `exportguard.source` is "file:line", or the file alone.
void split_place(std::string_view place, ir::SourceView& source) {
  source.file = place;
  const std::size_t colon = place.rfind(':');
  if (colon == std::string_view::npos) return;
  const std::string_view digits = place.substr(colon + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), source.line);
  if (error == std::errc() && end == digits.data() + digits.size()) source.file = place.substr(0, colon);
}

// Inverse of what the writer says of a node.
const ir::Source* read_source(const pb::NodeProto& node) {
  ir::SourceView source;
  bool is_known = false;
  for (const pb::StringStringEntryProto& entry : node.metadata_props()) {
    const std::string_view key = entry.key();
    if (!key.starts_with("exportguard.")) continue;
    is_known = true;
    if (key == "exportguard.target") source.target = entry.value();
    if (key == "exportguard.module") source.module = entry.value();
    if (key == "exportguard.class") source.type = entry.value();
    if (key == "exportguard.source") split_place(entry.value(), source);
  }
  return is_known ? ir::intern(source) : nullptr;
}

// Without those at the end that are left out, but of the call of a function: the checker wants as many as that has.
int count_of_outputs(const pb::NodeProto& node, bool is_call) {
  int count = node.output_size();
  if (is_call) return count;
  while (count > 0 && node.output(count - 1).empty()) --count;
  return count;
}

bool tells_shape(const pb::TypeProto& type) { return type.has_tensor_type() && type.tensor_type().has_shape(); }

/// What is said first holds, but for a shape that is told later alone.
template <typename List>
void collect_types(const List& list, std::unordered_map<std::string, const pb::TypeProto*>& into) {
  for (const pb::ValueInfoProto& info : list) {
    if (!info.has_type()) continue;
    const auto [known, is_new] = into.emplace(info.name(), &info.type());
    const bool says_more = !is_new && known->second->has_tensor_type() && !tells_shape(*known->second) &&
                           tells_shape(info.type()) &&
                           info.type().tensor_type().elem_type() == known->second->tensor_type().elem_type();
    if (says_more) known->second = &info.type();
  }
}

/// Outputs of a nested graph go by their place: one value may come twice.
bool has_output(const ir::Graph& graph, const std::string& name) {
  for (std::size_t i = 0; i < graph.output_count(); ++i) {
    if (graph.output_name(i) == name) return true;
  }
  return false;
}

}  // namespace

std::string described(const pb::NodeProto& node) {
  return node.name().empty() ? node.op_type() : fmt::format("{} ({})", node.name(), node.op_type());
}

std::string plain_domain(const std::string& domain) {
  require_text(domain);
  return domain == "ai.onnx" ? std::string() : domain;
}

const pb::AttributeProto* find_bound(const pb::AttributeProto& attribute, const Bindings& bindings) {
  if (attribute.ref_attr_name().empty()) return &attribute;
  const auto found = bindings.find(attribute.ref_attr_name());
  return found == bindings.end() ? nullptr : found->second;
}

// ------------------------------------------------------------------------------------------------ names

ir::Value* GraphReader::Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer) {
    const auto found = scope->values.find(name);
    if (found != scope->values.end()) return found->second;
  }
  return nullptr;
}

void GraphReader::Scope::define(const std::string& name, ir::Value& value) {
  if (name.empty()) return;
  require_text(name);
  if (!values.emplace(name, &value).second) {
    throw FileError(fmt::format("graph '{}' defines '{}' twice", graph.name(), name));
  }
}

ir::Type GraphReader::Scope::type(const std::string& name) const {
  const auto found = types.find(name);
  return found == types.end() ? ir::Type{} : read_type(*found->second);
}

// ------------------------------------------------------------------------------------------------ graphs

std::unique_ptr<ir::Graph> GraphReader::take(pb::GraphProto& proto, Defaults defaults) {
  auto graph = std::make_unique<ir::Graph>(proto.name());
  const Bindings none;
  Scope scope{nullptr, none, *graph, {}, {}};
  read_values(proto, scope);
  if (defaults == Defaults::kMayBeGiven) make_default_inputs(proto, scope);
  read_nodes(proto, scope);
  return graph;
}

std::unique_ptr<ir::Graph> GraphReader::nested(const pb::GraphProto& proto, const Scope& outer) {
  auto graph = std::make_unique<ir::Graph>(proto.name());
  Scope scope{&outer, outer.bindings, *graph, {}, {}};
  read_values(proto, scope);
  read_nodes(proto, scope);
  return graph;
}

std::unique_ptr<ir::Graph> GraphReader::read(const pb::FunctionProto& proto, const Bindings& bindings) {
  auto graph = std::make_unique<ir::Graph>(proto.name());
  Scope scope{nullptr, bindings, *graph, {}, {}};
  collect_types(proto.value_info(), scope.types);
  for (const std::string& name : proto.input()) scope.define(name, graph->add_input(name, scope.type(name)));
  for (const pb::NodeProto& node : proto.node()) read_node(node, scope);
  for (const std::string& name : proto.output()) read_output(name, scope);
  return graph;
}

// Initializers first: one that is an input as well gives that input a default.
template <typename Graph>
void GraphReader::read_values(Graph& proto, Scope& scope) {
  for (const pb::ValueInfoProto& input : proto.input()) require_readable(input, "input");
  for (const pb::ValueInfoProto& output : proto.output()) require_readable(output, "output");
  collect_types(proto.input(), scope.types);
  collect_types(proto.output(), scope.types);
  collect_types(proto.value_info(), scope.types);
  read_initializers(proto, scope);
  read_sparse(proto, scope);
  for (const pb::ValueInfoProto& input : proto.input()) {
    if (scope.values.contains(input.name()) && scope.values.at(input.name())->initializer() != nullptr) continue;
    scope.define(input.name(), scope.graph.add_input(input.name(), scope.type(input.name())));
  }
}

// The type is that of the input: what is given may have other sizes than the default.
void GraphReader::make_default_inputs(const pb::GraphProto& proto, Scope& scope) {
  for (std::int64_t place = 0; const pb::ValueInfoProto& input : proto.input()) {
    ir::Value* value = scope.find(input.name());
    ++place;
    if (value == nullptr || value->initializer() == nullptr) continue;
    ir::NodeSpec spec;
    spec.domain = ir::kDefaultInputDomain;
    spec.op = ir::kDefaultInput;
    spec.inputs = {value};
    spec.attributes.emplace_back(ir::kPlaceOfInput, place - 1);
    spec.outputs = {scope.type(input.name())};
    ir::Value& given = scope.graph.append(std::move(spec)).output();
    given.set_name(input.name());
    scope.values[input.name()] = &given;
  }
}

void GraphReader::read_nodes(const pb::GraphProto& proto, Scope& scope) {
  for (const pb::NodeProto& node : proto.node()) read_node(node, scope);
  for (const pb::ValueInfoProto& output : proto.output()) read_output(output.name(), scope);
}

void GraphReader::read_initializers(pb::GraphProto& proto, Scope& scope) {
  for (pb::TensorProto& tensor : *proto.mutable_initializer()) {
    const std::string name = tensor.name();
    scope.define(name, scope.graph.add_initializer(name, tensors_.take(tensor)));
  }
}

void GraphReader::read_initializers(const pb::GraphProto& proto, Scope& scope) {
  for (const pb::TensorProto& tensor : proto.initializer()) {
    scope.define(tensor.name(), scope.graph.add_initializer(tensor.name(), tensors_.copy(tensor)));
  }
}

void GraphReader::read_sparse(const pb::GraphProto& proto, Scope& scope) {
  for (const pb::SparseTensorProto& tensor : proto.sparse_initializer()) {
    const std::string& name = tensor.values().name();
    scope.define(name, scope.graph.add_initializer(name, tensors_.dense(tensor)));
  }
}

void GraphReader::read_output(const std::string& name, Scope& scope) {
  ir::Value* value = scope.find(name);
  if (value == nullptr) {
    throw FileError(fmt::format("output '{}' of graph '{}' is defined nowhere", name, scope.graph.name()));
  }
  const bool is_named = scope.outer == nullptr || !has_output(scope.graph, name);
  scope.graph.add_output(value, is_named ? name : std::string());
}

// ------------------------------------------------------------------------------------------------ nodes

void GraphReader::read_node(const pb::NodeProto& proto, Scope& scope) {
  const std::string call = functions_->find_call(proto, scope.bindings);
  ir::NodeSpec spec;
  spec.domain = plain_domain(proto.domain());
  spec.op = call.empty() ? proto.op_type() : call;
  spec.name = proto.name();
  spec.source = read_source(proto);
  spec.inputs = read_inputs(proto, scope);
  if (call.empty()) spec.attributes = read_attributes(proto, scope);
  spec.outputs.clear();
  const int output_count = count_of_outputs(proto, !call.empty());
  for (int i = 0; i < output_count; ++i) spec.outputs.push_back(scope.type(proto.output(i)));

  ir::Node& node = scope.graph.append(std::move(spec));
  for (int i = 0; i < output_count; ++i) {
    ir::Value& value = node.output(static_cast<std::size_t>(i));
    value.set_name(proto.output(i));
    scope.define(proto.output(i), value);
  }
}

std::vector<ir::Value*> GraphReader::read_inputs(const pb::NodeProto& proto, const Scope& scope) const {
  std::vector<ir::Value*> inputs;
  for (const std::string& name : proto.input()) {
    inputs.push_back(name.empty() ? nullptr : scope.find(name));
    if (inputs.back() != nullptr || name.empty()) continue;
    throw FileError(fmt::format("node {} of graph '{}' reads '{}', which nothing before it defines", described(proto),
                                scope.graph.name(), name));
  }
  return inputs;
}

std::vector<ir::NamedAttribute> GraphReader::read_attributes(const pb::NodeProto& proto, const Scope& scope) {
  std::vector<ir::NamedAttribute> attributes;
  std::unordered_set<std::string_view> names;
  for (const pb::AttributeProto& attribute : proto.attribute()) {
    const pb::AttributeProto* value = find_bound(attribute, scope.bindings);
    if (value == nullptr) continue;
    try {
      if (!names.insert(attribute.name()).second) throw FileError("it is given twice");
      const bool is_sparse = value->type() == pb::AttributeProto::SPARSE_TENSOR && attribute.name() == "sparse_value";
      attributes.emplace_back(is_sparse ? "value" : attribute.name(), read_attribute(*value, scope));
    } catch (const FileError& error) {
      throw FileError(fmt::format("attribute '{}' of node {}: {}", attribute.name(), described(proto), error.what()));
    }
  }
  return attributes;
}

ir::Attribute GraphReader::read_attribute(const pb::AttributeProto& proto, const Scope& scope) {
  switch (proto.type()) {
    case pb::AttributeProto::INT:
      return proto.i();
    case pb::AttributeProto::FLOAT:
      return static_cast<double>(proto.f());
    case pb::AttributeProto::STRING:
      return proto.s();
    case pb::AttributeProto::INTS:
      return std::vector<std::int64_t>(proto.ints().begin(), proto.ints().end());
    case pb::AttributeProto::FLOATS:
      return std::vector<double>(proto.floats().begin(), proto.floats().end());
    case pb::AttributeProto::STRINGS:
      return std::vector<std::string>(proto.strings().begin(), proto.strings().end());
    case pb::AttributeProto::TENSOR:
      return tensors_.copy(proto.t());
    case pb::AttributeProto::SPARSE_TENSOR:
      return tensors_.dense(proto.sparse_tensor());
    case pb::AttributeProto::GRAPH:
      return nested(proto.g(), scope);
    case pb::AttributeProto::TYPE_PROTO:
      return read_type(proto.tp());
    default:
      throw FileError(
          fmt::format("values of kind {} cannot be read", pb::AttributeProto::AttributeType_Name(proto.type())));
  }
}

}  // namespace exportguard::serialization
