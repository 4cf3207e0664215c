#include "serialization/allowed_nodes.h"

#include <fmt/format.h>
#include <onnx/defs/schema.h>

#include <new>

#include "exportguard/common/errors.h"
#include "serialization/graph_reader.h"

namespace exportguard::serialization {
namespace {

/// The version of ONNX's own operators; 0 if none is imported, so that nothing is known of them.
template <typename Imports>
int version_in(const Imports& imports) {
  for (const pb::OperatorSetIdProto& opset : imports) {
    if (plain_domain(opset.domain()).empty()) return static_cast<int>(opset.version());
  }
  return 0;
}

void require_allowed(const pb::NodeProto& node, int version);

template <typename Nodes>
void require_all_allowed(const Nodes& nodes, int version) {
  for (const pb::NodeProto& node : nodes) require_allowed(node, version);
}

/// What onnx throws has several unrelated types.
void verify(const pb::OpSchema& schema, const pb::NodeProto& node) {
  try {
    schema.Verify(node);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw FileError(fmt::format("node {}: {}", described(node), error.what()));
  }
}

void require_allowed(const pb::NodeProto& node, int version) {
  const bool is_onnx = plain_domain(node.domain()).empty();
  const pb::OpSchema* schema =
      is_onnx ? pb::OpSchemaRegistry::Schema(node.op_type(), version, pb::ONNX_DOMAIN) : nullptr;
  if (schema != nullptr && !schema->Deprecated()) verify(*schema, node);
  for (const pb::AttributeProto& attribute : node.attribute()) {
    if (attribute.has_g()) require_all_allowed(attribute.g().node(), version);
  }
}

}  // namespace

void require_allowed_nodes(const pb::ModelProto& model) {
  require_all_allowed(model.graph().node(), version_in(model.opset_import()));
  for (const pb::FunctionProto& function : model.functions()) {
    require_all_allowed(function.node(), version_in(function.opset_import()));
  }
}

}  // namespace exportguard::serialization
