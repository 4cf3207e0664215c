#pragma once

#include <onnx/onnx_pb.h>

#include <set>
#include <string>

#include "exportguard/ir/graph.h"
#include "serialization/external_data.h"
#include "serialization/names.h"
#include "serialization/proto_values.h"

namespace exportguard::serialization {

/// Writes one graph with those nested in it. Names, layout and domains outlive it.
class GraphWriter {
 public:
  struct Context {
    GraphNames& names;
    const DataLayout& layout;
    bool sources;
    std::set<std::string>& domains;  ///< gets every domain that a node is of
  };

  explicit GraphWriter(Context context) : context_(context) {}

  void write(const ir::Graph& graph, pb::GraphProto& proto);
  /// The body of a local function, whose initializers become Constant nodes.
  void write(const ir::Graph& body, pb::FunctionProto& proto);

 private:
  void write_initializer(const ir::Value& value, pb::TensorProto& proto);
  void write_constant(const ir::Value& value, pb::NodeProto& proto);
  void write_output(const ir::Graph& graph, const OutputName& output, pb::GraphProto& proto);
  void write_value_info(const ir::Graph& graph, pb::GraphProto& proto);
  void write_value(const std::string& name, const ir::Type& type, pb::ValueInfoProto& proto);
  void write_node(const ir::Node& node, pb::NodeProto& proto);
  void write_inputs(const ir::Node& node, pb::NodeProto& proto);
  void write_sources(const ir::Source& source, pb::NodeProto& proto);
  void write_attribute(const ir::NamedAttribute& attribute, pb::AttributeProto& proto);
  void write_identity(const OutputName& output, pb::NodeProto& proto);

  Context context_;
};

}  // namespace exportguard::serialization
