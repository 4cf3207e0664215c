#pragma once

#include <exportguard/ir/builder.h>

#include <memory>
#include <string>
#include <vector>

#include "python/bindings.h"

namespace exportguard::python {

/// A model under construction from Python, shared by everything that points into it.
struct Construction {
  std::unique_ptr<ir::Model> own;  ///< null while a converter writes into a model that is being lowered
  ir::Model* model = nullptr;
  bool is_over = false;  ///< the converter has returned: nothing may be read or written any more
  std::vector<std::unique_ptr<ir::Graph>> bodies;  ///< graphs that are no node's attribute yet
};

/// A value as Python holds it.
struct ValueHandle {
  std::shared_ptr<Construction> construction;
  ir::Value* value = nullptr;
};

/// One graph of a construction: the main graph, a body or a function, with a builder at its end; or the place of a
/// converter.
struct GraphScope {
  std::shared_ptr<Construction> construction;
  ir::Graph* graph = nullptr;
  std::unique_ptr<ir::Builder> own;
  ir::Builder* builder = nullptr;
  ir::Node* before = nullptr;  ///< new nodes stand in front of it; null: at the end

  ValueHandle handle(ir::Value* value) const { return {construction, value}; }
};

/// A scope that writes through a builder of somebody else, in front of `before`, until `construction->is_over`.
GraphScope scope_over(ir::Builder& builder, ir::Node* before, const std::shared_ptr<Construction>& construction);

void bind_graph_scope(py::module_& m);  ///< `GraphScope`, `GraphValue`

}  // namespace exportguard::python
