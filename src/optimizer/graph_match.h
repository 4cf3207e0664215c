#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "exportguard/optimizer/facts.h"
#include "exportguard/optimizer/graph_pattern.h"

namespace exportguard::optimizer {

/// Where a match graph lies in a graph: the search for it.
class GraphMatch {
 public:
  GraphMatch(const GraphPattern& pattern, const Facts& facts) : pattern_(pattern), facts_(facts) {}

  /// Whether the node of the match graph and all that it reads meet `node` and what that reads. Nothing is changed.
  bool find(const ir::Node& pattern_root, ir::Node& node);
  const std::string& reason() const { return reason_; }  ///< why not: of the first way that went the farthest

  Captures captures() const;
  /// What is to be replaced, for each output of the match graph.
  std::vector<Value*> outputs() const;

 private:
  struct Pair {
    const Value* pattern;
    Value* value;
  };
  struct State {
    std::unordered_map<const Value*, Value*> values;
    std::unordered_map<const ir::Node*, ir::Node*> nodes;
    std::map<std::string, SymExpr> sizes;
    std::vector<Pair> pending;
  };

  bool solve(State state);
  bool solve_pair(State& state, const Pair& pair);
  bool solve_node(State state, const ir::Node& pattern, ir::Node& node);
  bool meets_hole(State& state, std::size_t index, Value& value);
  bool meets_sizes(State& state, const std::vector<SymExpr>& wanted, const std::vector<SymExpr>& got);
  bool meets_constant(const ir::Tensor& wanted, const Value& value);
  bool has_attributes(const ir::Node& pattern, const ir::Node& node);
  bool is_free(const ir::Node& pattern, const std::string& attribute) const;
  bool is_separate(const State& state);
  bool is_output(const Value& pattern) const;
  bool no(std::string reason);

  const GraphPattern& pattern_;
  const Facts& facts_;
  ir::Node* root_ = nullptr;
  State found_;
  std::string reason_;
  std::size_t farthest_ = 0;
  std::size_t met_ = 0;  // nodes of the way that is tried
  std::size_t steps_ = 0;
};

}  // namespace exportguard::optimizer
