#pragma once

#include <onnx/onnx_pb.h>

#include <set>
#include <string>
#include <string_view>

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

  /// A nested graph.
  void write(const ir::Graph& graph, pb::GraphProto& proto);
  /// A model's graph, as the bytes of its GraphProto: a small piece is filled and written out again and again, so that
  /// a large graph takes no more memory as messages than a small one.
  /// @throws FileError if a piece is too large for protobuf.
  std::string bytes(const ir::Graph& graph);
  /// The body of a local function, whose initializers become Constant nodes.
  void write(const ir::Graph& body, pb::FunctionProto& proto);

 private:
  template <typename Pieces>
  void write_parts(const ir::Graph& graph, Pieces& pieces);
  template <typename Pieces>
  void write_value_info(const ir::Graph& graph, Pieces& pieces);
  void write_initializer(const ir::Value& value, pb::TensorProto& proto);
  void write_constant(const ir::Value& value, pb::NodeProto& proto);
  void write_output(const ir::Graph& graph, const OutputName& output, pb::GraphProto& proto);
  void write_value(std::string_view name, const ir::Type& type, pb::ValueInfoProto& proto);
  void write_node(const ir::Node& node, pb::NodeProto& proto);
  void write_inputs(const ir::Node& node, pb::NodeProto& proto);
  void write_outputs(const ir::Node& node, pb::NodeProto& proto);
  void write_sources(const ir::Source& source, pb::NodeProto& proto);
  void write_attribute(const ir::NamedAttribute& attribute, pb::AttributeProto& proto);
  void write_identity(const OutputName& output, pb::NodeProto& proto);

  Context context_;
};

}  // namespace exportguard::serialization
