#include "exportguard/optimizer/graph_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "exportguard/common/errors.h"
#include "exportguard/optimizer/rewriter.h"
#include "optimizer/graph_match.h"

namespace exportguard::optimizer {
namespace {

[[noreturn]] void fail(const GraphPattern& pattern, const std::string& reason) {
  throw InvalidArgument(fmt::format("pattern '{}': {}", pattern.name, reason));
}

void collect(const ir::Node& node, std::set<const ir::Node*>& nodes) {
  if (!nodes.insert(&node).second) return;
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    const Value* input = node.find_input(i);
    if (input && input->producer()) collect(*input->producer(), nodes);
  }
}

/// The node that is computed from all the others.
const ir::Node& root_of(const GraphPattern& pattern) {
  const ir::Graph& graph = *pattern.match->graph;
  for (const Value* output : graph.outputs()) {
    if (output->producer() == nullptr) fail(pattern, "an output of the match is none of its nodes' results");
    std::set<const ir::Node*> nodes;
    collect(*output->producer(), nodes);
    if (nodes.size() == graph.node_count()) return *output->producer();
  }
  fail(pattern, "no output of the match is computed from all of its nodes; write patterns of their own");
}

void require_attribute(const GraphPattern& pattern, const AttributeHole& hole) {
  std::size_t count = 0;
  for (const ir::Node& node : *pattern.match->graph) count += node.qualified_name() == hole.op ? 1 : 0;
  if (count == 1) return;
  fail(pattern, fmt::format("attribute '{}' is that of {}, of which the match has {} nodes instead of one", hole.name,
                            hole.op, count));
}

void require_sound(const GraphPattern& pattern) {
  if (!pattern.match || !pattern.replacement) fail(pattern, "it needs a match graph and a replacement");
  const ir::Graph& graph = *pattern.match->graph;
  if (graph.is_empty() || graph.output_count() == 0) fail(pattern, "the match has no node or no output");
  if (!pattern.holes.empty() && pattern.holes.size() != graph.input_count())
    fail(pattern, fmt::format("the match has {} inputs, got {} holes", graph.input_count(), pattern.holes.size()));
  for (const ir::Node& node : graph) {
    if (!node.subgraphs().empty()) fail(pattern, fmt::format("{} has a nested graph", node.qualified_name()));
  }
  for (const auto& input : graph.inputs()) {
    if (input->is_unused()) fail(pattern, fmt::format("nothing in the match reads '{}'", input->name()));
  }
  for (const AttributeHole& hole : pattern.attributes) require_attribute(pattern, hole);
  if (root_of(pattern).is("", "Constant")) fail(pattern, "the match is a constant alone");
}

// ------------------------------------------------------------------------------------------------ replacing

/// Nodes in front of `root` that were not there before.
class Written {
 public:
  explicit Written(ir::Node& root) : root_(root), previous_(root.previous()) {}

  std::vector<ir::Node*> nodes() const {
    std::vector<ir::Node*> made;
    ir::Node* first = previous_ ? previous_->next() : root_.graph().first();
    for (ir::Node* node = first; node != &root_; node = node->next()) made.push_back(node);
    return made;
  }
  void undo() const {
    const std::vector<ir::Node*> made = nodes();
    for (std::size_t i = made.size(); i-- > 0;) root_.graph().erase(*made[i]);
  }

 private:
  ir::Node& root_;
  ir::Node* previous_;
};

bool may_be_equal(const ir::Type& a, const ir::Type& b) {
  if (a.kind != b.kind) return false;
  if (a.dtype != DType::kUndefined && b.dtype != DType::kUndefined && a.dtype != b.dtype) return false;
  if (!a.shape || !b.shape) return true;
  return std::ranges::equal(*a.shape, *b.shape, [](const ir::Dim& left, const ir::Dim& right) {
    return left == right || !left.is_constant() || !right.is_constant();
  });
}

void require_like(const GraphPattern& pattern, const std::vector<Value*>& old, const std::vector<Value*>& made) {
  if (made.size() != old.size())
    fail(pattern, fmt::format("the replacement gives {} values, the match has {} outputs", made.size(), old.size()));
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (made[i] == nullptr) fail(pattern, fmt::format("output {} of the replacement is no value", i));
    if (may_be_equal(old[i]->type(), made[i]->type())) continue;
    fail(pattern, fmt::format("output {} of the replacement is {}, it takes the place of {} {}; let the condition "
                              "decline there",
                              i, made[i]->type().str(), old[i]->name().empty() ? "a value" : old[i]->name(),
                              old[i]->type().str()));
  }
}

std::vector<Value*> written(const GraphPattern& pattern, Rewriter& rewriter, const Captures& captures,
                            const std::vector<Value*>& old) {
  const Written nodes(rewriter.root());
  try {
    ir::Builder builder(rewriter.model(), rewriter.root());
    std::vector<Value*> made = pattern.replacement(builder, captures);
    require_like(pattern, old, made);
    for (ir::Node* node : nodes.nodes()) rewriter.note_made(*node);
    return made;
  } catch (...) {
    nodes.undo();
    throw;
  }
}

void replace(const GraphPattern& pattern, Rewriter& rewriter, const GraphMatch& match) {
  const std::vector<Value*> old = match.outputs();
  const std::vector<Value*> made = written(pattern, rewriter, match.captures(), old);
  for (std::size_t i = 0; i < old.size(); ++i) {
    if (made[i] == old[i]) continue;
    if (made[i]->producer() != nullptr && !made[i]->type().shape) made[i]->set_type(old[i]->type());
    rewriter.replace(*old[i], *made[i]);
  }
}

/// A pattern with what is found out about it once.
struct Rule {
  explicit Rule(GraphPattern given)
      : pattern(std::move(given)), root(root_of(pattern)), operation(root.qualified_name()) {}

  GraphPattern pattern;
  const ir::Node& root;
  std::string operation;
};

Match match_at(const std::shared_ptr<const Rule>& rule, const Facts& facts, ir::Node& node) {
  const auto match = std::make_shared<GraphMatch>(rule->pattern, facts);
  if (!match->find(rule->root, node)) return Match::no(match->reason());
  std::string refusal = rule->pattern.condition ? rule->pattern.condition(match->captures()) : std::string();
  if (!refusal.empty()) return Match::no(std::move(refusal));
  return Match([rule, match](Rewriter& rewriter) { replace(rule->pattern, rewriter, *match); });
}

}  // namespace

Pattern pattern_of(GraphPattern graph_pattern) {
  require_sound(graph_pattern);
  const auto rule = std::make_shared<const Rule>(std::move(graph_pattern));
  return {.name = rule->pattern.name,
          .matches = rule->pattern.matches,
          .makes = rule->pattern.makes,
          .roots = {rule->operation},
          .match = [rule](const Facts& facts, ir::Node& node) { return match_at(rule, facts, node); },
          .stage = rule->pattern.stage,
          .opset = rule->pattern.opset,
          .target = rule->pattern.target};
}

}  // namespace exportguard::optimizer
