#pragma once

#include <deque>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "exportguard/optimizer/facts.h"
#include "exportguard/optimizer/optimize.h"
#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {

/// Tries patterns on the nodes of a graph and of those nested in it until none matches. A node is looked at when the
/// run begins and after something beside it has changed, a bounded number of times.
class Driver {
 public:
  Driver(const Facts& facts, std::vector<const Pattern*> patterns, std::vector<PatternReport>& reports);

  /// Patterns of that stage and the ones before.
  void run(ir::Graph& graph, Stage stage);

 private:
  void enqueue_all(ir::Graph& graph);
  void enqueue(ir::Node* node);
  void visit(ir::Node& node, Stage stage);
  bool try_pattern(std::size_t pattern, ir::Node& node);
  void clean_up(const Rewriter& rewriter, const Pattern& pattern);

  const Facts& facts_;
  std::vector<const Pattern*> patterns_;
  std::vector<PatternReport>& reports_;  // one for each pattern
  std::unordered_map<std::string, std::vector<std::size_t>> by_root_;
  std::vector<std::unordered_map<const char*, std::size_t>> refusals_;
  std::deque<ir::Node*> queue_;
  std::unordered_set<const ir::Node*> queued_;
  std::unordered_map<const ir::Node*, int> visits_;
};

}  // namespace exportguard::optimizer
