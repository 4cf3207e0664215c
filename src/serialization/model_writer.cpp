#include "serialization/model_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <map>
#include <set>

#include "exportguard/common/errors.h"
#include "exportguard/ir/places.h"
#include "serialization/graph_writer.h"

namespace exportguard::serialization {
namespace {

constexpr std::size_t kMostReported = 10;

using Opsets = std::map<std::string, std::int64_t>;

void collect_torch_nodes(const ir::Graph& graph, std::vector<const ir::Node*>& into) {
  for (const ir::Node& node : graph) {
    if (node.is_torch()) into.push_back(&node);
    for (const ir::Graph* nested : node.subgraphs()) collect_torch_nodes(*nested, into);
  }
}

void require_lowered(const ir::Model& model) {
  std::vector<const ir::Node*> left;
  collect_torch_nodes(*model.graph, left);
  for (const ir::Function& function : model.functions) collect_torch_nodes(*function.body, left);
  if (left.empty()) return;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < left.size() && i < kMostReported; ++i)
    names.push_back(ir::placed(left[i]->qualified_name(), left[i]->source()));
  const std::string_view more = left.size() > kMostReported ? ", …" : "";
  throw GraphError(fmt::format("{} torch-level nodes are left, lower the model before saving it: {}{}", left.size(),
                               fmt::join(names, ", "), more));
}

std::int64_t onnx_opset(const ir::Model& model) {
  const auto found = model.opsets.find("");
  if (found != model.opsets.end()) return found->second;
  throw GraphError("the model names no version of the ONNX domain; set opsets[\"\"], to 22 for instance");
}

// Domains that nodes use without a declared version are local functions' or contributed ones: version 1.
Opsets complete(Opsets opsets, const std::set<std::string>& domains) {
  for (const std::string& domain : domains) opsets.emplace(domain, 1);
  return opsets;
}

template <typename Proto>
void write_opsets(const Opsets& opsets, Proto& proto) {
  for (const auto& [domain, version] : opsets) {
    pb::OperatorSetIdProto& added = *proto.add_opset_import();
    added.set_domain(domain);
    added.set_version(version);
  }
}

struct Target {
  const SaveOptions& options;
  const DataLayout& layout;
};

void write_function(const ir::Function& function, const Opsets& model_opsets, const Target& target,
                    pb::FunctionProto& proto) {
  GraphNames names(*function.body);
  std::set<std::string> domains;
  proto.set_domain(function.domain);
  proto.set_name(function.name);
  for (const std::string& attribute : function.attributes) proto.add_attribute(attribute);
  GraphWriter({names, target.layout, target.options.sources, domains}).write(*function.body, proto);
  write_opsets(complete(function.opsets.empty() ? model_opsets : function.opsets, domains), proto);
}

std::string write_graph(const ir::Model& model, const Target& target, pb::ModelProto& proto) {
  GraphNames names(*model.graph);
  std::set<std::string> domains;
  std::string bytes = GraphWriter({names, target.layout, target.options.sources, domains}).bytes(*model.graph);
  if (!model.graph_documentation.empty()) {  // pieces of a message one behind the other are one message
    pb::GraphProto texts;
    texts.set_doc_string(model.graph_documentation);
    bytes += texts.SerializeAsString();
  }
  for (const ir::Function& function : model.functions) domains.insert(function.domain);
  write_opsets(complete(model.opsets, domains), proto);
  return bytes;
}

std::string head(const pb::ModelProto& proto, std::size_t graph_size) {
  std::string bytes = proto.SerializeAsString();
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  constexpr int kLengthDelimited = 2;
  coded.WriteTag((pb::ModelProto::kGraphFieldNumber << 3) | kLengthDelimited);
  coded.WriteVarint64(graph_size);
  coded.Trim();
  return bytes;
}

}  // namespace

ModelBytes serialize(const ir::Model& model, const SaveOptions& options, const DataLayout& layout) {
  require_lowered(model);
  pb::ModelProto proto;
  proto.set_ir_version(ir_version(onnx_opset(model)));
  proto.set_producer_name(model.producer);
  proto.set_producer_version(model.producer_version);
  if (!model.domain.empty()) proto.set_domain(model.domain);
  if (model.version != 0) proto.set_model_version(model.version);
  if (!model.documentation.empty()) proto.set_doc_string(model.documentation);
  const Target target{options, layout};
  std::string graph = write_graph(model, target, proto);
  for (const ir::Function& function : model.functions) {
    write_function(function, model.opsets, target, *proto.add_functions());
  }
  for (const auto& [key, value] : model.metadata) {
    pb::StringStringEntryProto& entry = *proto.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  }
  return {head(proto, graph.size()), std::move(graph)};
}

}  // namespace exportguard::serialization
