#pragma once

#include <deque>
#include <set>
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
  Driver(ir::Model& model, const Facts& facts, std::vector<const Pattern*> patterns,
         std::vector<PatternReport>& reports);

  /// Patterns of that stage and the ones before.
  /// @throws InvalidArgument if patterns make ever more nodes for each other.
  void run(ir::Graph& graph, Stage stage);

  /// Domains of the nodes that were made, beside ONNX's own.
  const std::set<std::string>& domains() const { return domains_; }

 private:
  void enqueue_all(ir::Graph& graph);
  void enqueue(ir::Node* node);
  const std::vector<std::size_t>* find_patterns(const ir::Node& node) const;
  void visit(ir::Node& node, Stage stage);
  void require_end(const Pattern& pattern);
  bool try_pattern(std::size_t pattern, ir::Node& node);
  bool apply_pattern(std::size_t pattern, ir::Node& node);
  void clean_up(const Rewriter& rewriter, const Pattern& pattern);

  ir::Model& model_;
  const Facts& facts_;
  std::vector<const Pattern*> patterns_;
  std::vector<PatternReport>& reports_;                                // one for each pattern
  std::unordered_map<std::string, std::vector<std::size_t>> by_root_;  // by qualified name
  std::vector<std::size_t> for_any_root_;
  std::vector<std::unordered_map<const char*, std::size_t>> refusals_;
  std::size_t most_applications_ = 0;
  std::size_t applications_ = 0;
  std::deque<ir::Node*> queue_;
  std::unordered_set<const ir::Node*> queued_;
  std::unordered_map<const ir::Node*, int> visits_;
  std::set<std::string> domains_;
};

}  // namespace exportguard::optimizer
