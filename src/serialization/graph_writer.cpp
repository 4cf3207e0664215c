#include "serialization/graph_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "exportguard/common/errors.h"
#include "exportguard/ir/default_input.h"

namespace exportguard::serialization {
namespace {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

// Protobuf takes views by copying them into a string first.
void assign(std::string* field, std::string_view value) { field->assign(value); }

void add_entry(pb::StringStringEntryProto& entry, std::string_view key, std::string_view value) {
  assign(entry.mutable_key(), key);
  assign(entry.mutable_value(), value);
}

/// Those with a default stand where they stood in the file that was read.
std::vector<const ir::Value*> inputs_in_order(const ir::Graph& graph) {
  std::vector<const ir::Value*> found;
  for (const auto& input : graph.inputs()) found.push_back(input.get());
  for (const ir::Node& node : graph) {
    if (!ir::is_default_input(node)) continue;
    const ir::Attribute* told = node.find_attribute(ir::kPlaceOfInput);
    const auto last = static_cast<std::int64_t>(found.size());
    const std::int64_t place = told ? std::clamp<std::int64_t>(std::get<std::int64_t>(*told), 0, last) : last;
    found.insert(found.begin() + place, &node.output());
  }
  return found;
}

// Messages of one graph that are written out as they come. Protobuf reads messages that follow each other as one, whose
// repeated fields are those of all.
class Pieces {
 public:
  explicit Pieces(std::string& bytes) : bytes_(bytes) {}

  pb::GraphProto& next() {
    if (++count_ == kLargest) flush();
    return piece_;
  }

  void flush() {
    if (!piece_.AppendToString(&bytes_)) throw FileError("protobuf cannot write a part of the graph");
    piece_.Clear();  // keeps its memory
    count_ = 0;
  }

 private:
  static constexpr std::size_t kLargest = 32;  // nodes; fits into the processor's first cache

  std::string& bytes_;
  pb::GraphProto piece_;
  std::size_t count_ = 0;
};

// A graph that stays a message.
class Whole {
 public:
  explicit Whole(pb::GraphProto& proto) : proto_(proto) {}
  pb::GraphProto& next() { return proto_; }
  void flush() {}

 private:
  pb::GraphProto& proto_;
};

void refer_to_data(const DataLayout& layout, const DataLayout::Slot& slot, pb::TensorProto& proto) {
  proto.set_data_location(pb::TensorProto::EXTERNAL);
  add_entry(*proto.add_external_data(), "location", layout.location());
  add_entry(*proto.add_external_data(), "offset", fmt::format("{}", slot.offset));
  add_entry(*proto.add_external_data(), "length", fmt::format("{}", slot.bytes));
}

// Everything but graphs, which need the names.
void fill_attribute(const ir::Attribute& value, pb::AttributeProto& proto) {
  const Overloaded fill{
      [&](std::int64_t v) { proto.set_type(pb::AttributeProto::INT), proto.set_i(v); },
      [&](double v) { proto.set_type(pb::AttributeProto::FLOAT), proto.set_f(static_cast<float>(v)); },
      [&](const std::string& v) { proto.set_type(pb::AttributeProto::STRING), proto.set_s(v); },
      [&](const std::vector<std::int64_t>& list) {
        proto.set_type(pb::AttributeProto::INTS);
        proto.mutable_ints()->Assign(list.begin(), list.end());
      },
      [&](const std::vector<double>& list) {
        proto.set_type(pb::AttributeProto::FLOATS);
        for (const double v : list) proto.add_floats(static_cast<float>(v));
      },
      [&](const std::vector<std::string>& list) {
        proto.set_type(pb::AttributeProto::STRINGS);
        for (const std::string& v : list) proto.add_strings(v);
      },
      [&](const ir::Tensor& v) {
        proto.set_type(pb::AttributeProto::TENSOR);
        fill_tensor_header(v, *proto.mutable_t());
        fill_tensor_data(v, *proto.mutable_t());
      },
      [&](const ir::Type& v) { proto.set_type(pb::AttributeProto::TYPE_PROTO), fill_type(v, *proto.mutable_tp()); },
      [](const std::unique_ptr<ir::Graph>&) {},
  };
  std::visit(fill, value);
}

}  // namespace

void GraphWriter::write(const ir::Graph& graph, pb::GraphProto& proto) {
  Whole whole(proto);
  write_parts(graph, whole);
}

std::string GraphWriter::bytes(const ir::Graph& graph) {
  std::string bytes;
  Pieces pieces(bytes);
  write_parts(graph, pieces);
  pieces.flush();
  return bytes;
}

template <typename Pieces>
void GraphWriter::write_parts(const ir::Graph& graph, Pieces& pieces) {
  pieces.next().set_name(graph.name().empty() ? "graph" : graph.name());
  for (const ir::Value* input : inputs_in_order(graph)) {
    write_value(context_.names.value(*input), input->type(), *pieces.next().add_input());
  }
  for (const auto& value : graph.initializers()) {
    write_initializer(*value, *pieces.next().add_initializer());
    pieces.flush();  // it may be large
  }
  for (const ir::Node& node : graph) {
    if (!ir::is_default_input(node)) write_node(node, *pieces.next().add_node());
  }
  for (const OutputName& output : context_.names.outputs(graph)) write_output(graph, output, pieces.next());
  write_value_info(graph, pieces);
}

void GraphWriter::write(const ir::Graph& body, pb::FunctionProto& proto) {
  for (const auto& input : body.inputs()) assign(proto.add_input(), context_.names.value(*input));
  for (const auto& value : body.initializers()) write_constant(*value, *proto.add_node());
  for (const ir::Node& node : body) write_node(node, *proto.add_node());
  for (const OutputName& output : context_.names.outputs(body)) {
    assign(proto.add_output(), output.name);
    if (output.needs_identity) write_identity(output, *proto.add_node());
  }
}

void GraphWriter::write_initializer(const ir::Value& value, pb::TensorProto& proto) {
  const ir::Tensor& tensor = *value.initializer();
  assign(proto.mutable_name(), context_.names.value(value));
  fill_tensor_header(tensor, proto);
  if (const auto slot = context_.layout.find(tensor)) {
    refer_to_data(context_.layout, *slot, proto);
  } else {
    fill_tensor_data(tensor, proto);
  }
}

void GraphWriter::write_constant(const ir::Value& value, pb::NodeProto& proto) {
  context_.domains.insert("");
  proto.set_op_type("Constant");
  assign(proto.mutable_name(), context_.names.new_node("Constant"));
  assign(proto.add_output(), context_.names.value(value));
  pb::AttributeProto& attribute = *proto.add_attribute();
  attribute.set_name("value");
  fill_attribute(*value.initializer(), attribute);
}

void GraphWriter::write_output(const ir::Graph& graph, const OutputName& output, pb::GraphProto& proto) {
  if (output.needs_identity) write_identity(output, *proto.add_node());
  const ir::Type& type = output.value->type();
  if (type.dtype == DType::kUndefined && graph.parent() == nullptr) {
    throw GraphError(fmt::format("output '{}' has no dtype; set the type of its value before saving", output.name));
  }
  write_value(output.name, type, *proto.add_output());
}

template <typename Pieces>
void GraphWriter::write_value_info(const ir::Graph& graph, Pieces& pieces) {
  std::unordered_set<std::string_view> outputs;
  for (const OutputName& output : context_.names.outputs(graph)) outputs.insert(output.name);
  for (const ir::Node& node : graph) {
    if (ir::is_default_input(node)) continue;
    for (std::size_t i = 0; i < node.output_count(); ++i) {
      const ir::Value& value = node.output(i);
      const std::string_view name = context_.names.value(value);
      if (!is_known(value.type()) || outputs.contains(name)) continue;
      write_value(name, value.type(), *pieces.next().add_value_info());
    }
  }
}

void GraphWriter::write_value(std::string_view name, const ir::Type& type, pb::ValueInfoProto& proto) {
  assign(proto.mutable_name(), name);
  if (type.dtype != DType::kUndefined) fill_type(type, *proto.mutable_type());
}

void GraphWriter::write_node(const ir::Node& node, pb::NodeProto& proto) {
  context_.domains.insert(node.domain());
  assign(proto.mutable_name(), context_.names.node(node));
  proto.set_domain(node.domain());
  proto.set_op_type(node.op());
  write_inputs(node, proto);
  write_outputs(node, proto);
  for (const ir::NamedAttribute& attribute : node.attributes()) write_attribute(attribute, *proto.add_attribute());
  if (context_.sources && node.source() != nullptr) write_sources(*node.source(), proto);
}

// ONNX marks an operand that is left out by an empty name, and drops those at the end; but `Loop` has two in any case.
void GraphWriter::write_inputs(const ir::Node& node, pb::NodeProto& proto) {
  const std::size_t least = node.is("", "Loop") ? 2 : 0;
  std::size_t count = std::max(node.input_count(), least);
  while (count > least && node.find_input(count - 1) == nullptr) --count;
  for (std::size_t i = 0; i < count; ++i) {
    const ir::Value* input = node.find_input(i);
    assign(proto.add_input(), input != nullptr ? context_.names.value(*input) : std::string_view());
  }
}

// onnxruntime's own operators do not compute a result without a name.
void GraphWriter::write_outputs(const ir::Node& node, pb::NodeProto& proto) {
  const auto is_left_out = [&](std::size_t i) {
    const ir::Value& value = node.output(i);
    const bool is_known = value.dtype() != DType::kUndefined || !value.name().empty();
    return i > 0 && node.domain() == "com.microsoft" && value.is_unused() && !is_known;
  };
  std::size_t count = node.output_count();
  while (count > 0 && is_left_out(count - 1)) --count;
  for (std::size_t i = 0; i < count; ++i)
    assign(proto.add_output(), is_left_out(i) ? std::string_view() : context_.names.value(node.output(i)));
}

void GraphWriter::write_sources(const ir::Source& source, pb::NodeProto& proto) {
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) add_entry(*proto.add_metadata_props(), key, value);
  };
  add("exportguard.target", source.target);
  add("exportguard.module", source.module);
  add("exportguard.class", source.type);
  add("exportguard.source", source.line > 0 ? fmt::format("{}:{}", source.file, source.line) : source.file);
}

void GraphWriter::write_attribute(const ir::NamedAttribute& attribute, pb::AttributeProto& proto) {
  proto.set_name(attribute.first);
  fill_attribute(attribute.second, proto);
  const auto* nested = std::get_if<std::unique_ptr<ir::Graph>>(&attribute.second);
  if (nested == nullptr) return;
  proto.set_type(pb::AttributeProto::GRAPH);
  write(**nested, *proto.mutable_g());
}

void GraphWriter::write_identity(const OutputName& output, pb::NodeProto& proto) {
  context_.domains.insert("");
  proto.set_op_type("Identity");
  assign(proto.mutable_name(), context_.names.new_node("Identity"));
  assign(proto.add_input(), context_.names.value(*output.value));
  assign(proto.add_output(), output.name);
}

}  // namespace exportguard::serialization
