#pragma once

#include <string>
#include <vector>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/lower.h"
#include "ir/builder_memory.h"
#include "lowering/schema.h"

namespace exportguard::lowering {

struct Failure {
  std::string target;
  std::string where;
  std::string reason;  ///< empty: the operator has no row
};

/// State of one run of `lower`.
struct LoweringContext::Shared {
  ir::Model& model;
  const LoweringTable& table;
  Target target;
  SchemaCache schemas;
  std::vector<Failure> failures;
  ir::Builder::Memory memory{model, *model.graph};
};

/// Lowers every torch-level node of `graph`, whose scope is open; failures are collected in `shared`.
void lower_graph(LoweringContext::Shared& shared, ir::Graph& graph);

/// The same for the nodes from `first` to `end`, without `end`, in the scope that is open.
void lower_nodes(LoweringContext::Shared& shared, ir::Node& first, const ir::Node& end);

}  // namespace exportguard::lowering
