#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "exportguard/ir/builder.h"
#include "exportguard/ir/inference.h"

namespace exportguard::ir {

/// What has been computed in one graph and can be used again in it and in the graphs nested in it.
struct BuilderScope {
  Graph* graph = nullptr;
  bool is_isolated = false;  ///< of a function: what is around it cannot be read
  int opset = 0;
  std::unordered_map<SymExpr, Value*> dims;                              ///< expression → int64[1]
  std::unordered_map<SymExpr, std::pair<Value*, std::int64_t>> origins;  ///< expression → value and axis that has it
  std::unordered_map<SymExpr, Value*> scalar_origins;                    ///< expression → rank 0 value that is it
  std::unordered_map<const Value*, Value*> scalar_of_dim;                ///< int64[1] → its rank 0 twin
  std::unordered_map<const Value*, Value*> shapes;                       ///< value → Shape(value)
  std::map<std::vector<std::pair<std::int64_t, const Value*>>, Value*> concatenated;  ///< parts → int64[n]
};

/// What builders of one run share.
class Builder::Memory {
 public:
  /// Stands in `graph` of the model, or in a graph nested in it.
  Memory(Model& owner, Graph& graph);

  Model& model;
  KnownElements elements;
  std::unordered_map<const Value*, Value*> dim_of_scalar;  ///< rank 0 → its int64[1] twin

  int opset() const;
  std::map<std::string, std::int64_t>& opsets() const;  ///< of the model or function around the place
  /// Opens a scope; knows the sizes of the graph's inputs.
  void enter(Graph& graph, bool is_isolated = false);
  void leave() { scopes().pop_back(); }
  BuilderScope& scope() { return scopes().back(); }
  Graph& home() const;  ///< the model's graph or the body of the function around the place: constants go there
  /// Spelled content → initializer of `home()`.
  std::unordered_map<std::string, Value*>& constants() { return constants_[&home()]; }
  void note_sizes(Value& value, const Type& type);

  /// What scopes know, innermost first, up to the function around the place. Null if none does.
  template <typename Map, typename Key>
  typename Map::mapped_type const* find(Map BuilderScope::* map, const Key& key) {
    auto& opened = scopes();
    for (auto scope = opened.rbegin(); scope != opened.rend(); ++scope) {
      const auto& entries = (*scope).*map;
      if (const auto entry = entries.find(key); entry != entries.end()) return &entry->second;
      if (scope->is_isolated) break;
    }
    return nullptr;
  }

  /// What an int64[1] value or rank 0 value is, if its one element is known.
  const SymExpr* find_expression(const Value& value) const;
  std::optional<SymExpr> expression_of(const Size& size) const;
  int fresh_constants = 0;

 private:
  int declared_opset() const;
  std::vector<BuilderScope>& scopes();  ///< opens those around the place first

  Graph* start_;
  bool is_opened_ = false;
  std::vector<BuilderScope> scopes_;  // innermost last
  std::unordered_map<const Graph*, std::unordered_map<std::string, Value*>> constants_;
};

}  // namespace exportguard::ir
