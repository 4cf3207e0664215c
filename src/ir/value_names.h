#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "exportguard/ir/graph.h"

namespace exportguard::ir {

/// How the text format spells each value of a graph and of the graphs nested in it: `%name`, `%"odd name"`, `%0`. Each
/// spelling is used once in the whole tree; inputs, initializers and outputs have the first choice.
class ValueNames {
 public:
  explicit ValueNames(const Graph& graph) { add_graph(graph); }

  /// A value from outside the graph gets a spelling when it is first asked for.
  const std::string& operator[](const Value& value);

 private:
  void add_graph(const Graph& graph);
  void add(const Value& value);
  std::string unique(const std::string& name);

  std::unordered_map<const Value*, std::string> spellings_;
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, std::size_t> suffixes_;  // the last one given to a name
  std::size_t unnamed_ = 0;
};

}  // namespace exportguard::ir
