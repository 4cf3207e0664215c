#pragma once

#include <onnx/onnx_pb.h>

#include <memory>
#include <string>
#include <unordered_map>

#include "exportguard/ir/graph.h"
#include "serialization/function_reader.h"
#include "serialization/tensor_reader.h"

namespace exportguard::serialization {

namespace pb = ONNX_NAMESPACE;

/// `conv (Conv)`, or the operator alone of a node without a name.
std::string described(const pb::NodeProto& node);

/// `ai.onnx` is another name of ONNX's own domain.
std::string plain_domain(const std::string& domain);

/// What an attribute of a node in a function's body stands for: itself, or what the call gave; null if it gave none.
const pb::AttributeProto* find_bound(const pb::AttributeProto& attribute, const Bindings& bindings);

/// Reads graphs with those nested in them.
class GraphReader {
 public:
  /// `functions` may be set later, before the first graph is read.
  explicit GraphReader(TensorReader& tensors) : tensors_(tensors) {}
  void set_functions(FunctionReader& functions) { functions_ = &functions; }

  /// Takes the weights out of `proto`; an initializer that is an input as well is its default, and a constant for
  /// `Defaults::kConstant`. @throws FileError naming the node, GraphError for names that collide.
  enum class Defaults { kConstant, kMayBeGiven };
  std::unique_ptr<ir::Graph> take(pb::GraphProto& proto, Defaults defaults);
  /// The body of a local function, called with `bindings`.
  std::unique_ptr<ir::Graph> read(const pb::FunctionProto& proto, const Bindings& bindings);

 private:
  // The values that a graph's nodes may read, by name.
  struct Scope {
    const Scope* outer = nullptr;
    const Bindings& bindings;
    ir::Graph& graph;
    std::unordered_map<std::string, ir::Value*> values;
    std::unordered_map<std::string, const pb::TypeProto*> types;

    ir::Value* find(const std::string& name) const;
    void define(const std::string& name, ir::Value& value);
    ir::Type type(const std::string& name) const;
  };

  std::unique_ptr<ir::Graph> nested(const pb::GraphProto& proto, const Scope& outer);
  template <typename Graph>
  void read_values(Graph& proto, Scope& scope);
  void read_nodes(const pb::GraphProto& proto, Scope& scope);
  static void make_default_inputs(const pb::GraphProto& proto, Scope& scope);
  void read_initializers(pb::GraphProto& proto, Scope& scope);
  void read_initializers(const pb::GraphProto& proto, Scope& scope);
  void read_sparse(const pb::GraphProto& proto, Scope& scope);
  void read_node(const pb::NodeProto& proto, Scope& scope);
  std::vector<ir::Value*> read_inputs(const pb::NodeProto& proto, const Scope& scope) const;
  std::vector<ir::NamedAttribute> read_attributes(const pb::NodeProto& proto, const Scope& scope);
  ir::Attribute read_attribute(const pb::AttributeProto& proto, const Scope& scope);
  static void read_output(const std::string& name, Scope& scope);

  TensorReader& tensors_;
  FunctionReader* functions_ = nullptr;
};

}  // namespace exportguard::serialization
