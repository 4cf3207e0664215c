#include "exportguard/serialization/settled_names.h"

#include "serialization/names.h"

namespace exportguard::serialization {
namespace {

void settle(ir::Graph& graph, const GraphNames& names) {
  for (ir::Node& node : graph) {
    node.set_name(std::string(names.node(node)));
    for (std::size_t i = 0; i < node.output_count(); ++i) {
      node.output(i).set_name(std::string(names.value(node.output(i))));
    }
    for (ir::Graph* nested : node.subgraphs()) settle(*nested, names);
  }
}

}  // namespace

void settle_names(ir::Model& model) { settle(*model.graph, GraphNames(*model.graph)); }

}  // namespace exportguard::serialization
