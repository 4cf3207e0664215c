#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/lower.h"
#include "lowering/schema.h"

namespace exportguard::lowering {

/// What has been computed in one graph and can be used again in it and in the graphs nested in it.
struct Scope {
  ir::Graph* graph = nullptr;
  std::unordered_map<SymExpr, Value*> dims;                              ///< expression → int64[1]
  std::unordered_map<SymExpr, std::pair<Value*, std::int64_t>> origins;  ///< expression → value and axis that has it
  std::unordered_map<SymExpr, Value*> scalar_origins;                    ///< expression → rank 0 value that is it
  std::unordered_map<const Value*, Value*> scalar_of_dim;                ///< int64[1] → its rank 0 twin
  std::unordered_map<const Value*, Value*> shapes;                       ///< value → Shape(value)
  std::map<std::vector<std::pair<std::int64_t, const Value*>>, Value*> concatenated;  ///< parts → int64[n]
};

struct Failure {
  std::string target;
  std::string where;
  std::string reason;  ///< empty: the operator has no row
};

/// State of one run of `lower`.
struct LoweringContext::Shared {
  ir::Model& model;
  const LoweringTable& table;
  int opset;
  SchemaCache schemas;
  std::vector<Scope> scopes;                               ///< innermost last
  std::map<std::string, Value*> constants;                 ///< spelled content → initializer of the main graph
  std::unordered_map<const Value*, SymExpr> expressions;   ///< int64[1] → what it is
  std::unordered_map<const Value*, Value*> dim_of_scalar;  ///< rank 0 → its int64[1] twin
  std::vector<Failure> failures;
  int fresh_symbols = 0;
  int fresh_constants = 0;

  Scope& scope() { return scopes.back(); }
  void enter(ir::Graph& graph);  ///< opens a scope; knows the sizes of the graph's inputs
  void leave() { scopes.pop_back(); }
  /// Remembers that the sizes of `value` can be read off it.
  void note_sizes(Value& value, const ir::Type& type);
  SymExpr fresh_symbol();
};

/// Lowers every torch-level node of `graph`; failures are collected in `shared`.
void lower_graph(LoweringContext::Shared& shared, ir::Graph& graph);

/// The same for the nodes from `first` to `end`, without `end`, in the scope that is open.
void lower_nodes(LoweringContext::Shared& shared, ir::Node& first, const ir::Node& end);

/// Types of an ONNX node's outputs as far as its operator and inputs tell. Sizes that are not known get fresh symbols.
std::vector<ir::Type> infer_types(LoweringContext::Shared& shared, const ir::NodeSpec& spec);

}  // namespace exportguard::lowering
