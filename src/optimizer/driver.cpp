#include "optimizer/driver.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <stdexcept>

#include "exportguard/common/errors.h"
#include "exportguard/ir/default_input.h"
#include "ir/describe.h"

namespace exportguard::optimizer {
namespace {

using Clock = std::chrono::steady_clock;

// A node's surroundings change a few times; patterns that undo each other would go on for ever.
constexpr int kMostVisits = 24;
constexpr std::size_t kMostForEachNode = 16;
constexpr std::size_t kMostForEachGraph = 1000;
constexpr std::size_t kMostTargets = 12;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

bool is_return(const ir::Node& node) { return node.is("", "return"); }

/// Whether the node was erased, or stands in a graph of one that was: such nodes stay, but have no operands any more.
bool is_gone(const ir::Node& node) {
  const ir::Node* around = &node;
  while (around != nullptr && !around->is_erased()) around = around->graph().parent();
  return around != nullptr;
}

/// An input that may be left out stays one, though nothing reads it.
bool is_dead(const ir::Node& node) {
  if (ir::is_default_input(node)) return false;
  for (std::size_t i = 0; i < node.output_count(); ++i) {
    if (!node.output(i).is_unused()) return false;
  }
  return node.output_count() > 0;
}

std::vector<ir::Node*> producers_of_inputs(const ir::Node& node) {
  std::vector<ir::Node*> producers;
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    const Value* input = node.find_input(i);
    if (input && input->producer()) producers.push_back(input->producer());
  }
  return producers;
}

/// The torch operators behind several nodes, as those of one. The place is that of `first`.
class Provenance {
 public:
  explicit Provenance(const ir::Source* first) : first_(first) { add(first); }

  void add(const ir::Source* source) {
    if (source == nullptr || targets_.size() == kMostTargets) return;
    if (first_ == nullptr) first_ = source;
    if (std::ranges::find(targets_, source->target) == targets_.end()) targets_.push_back(source->target);
  }

  const ir::Source* joined() const {
    if (targets_.size() < 2) return first_;
    std::string targets;
    for (const std::string& target : targets_) targets += (targets.empty() ? "" : " + ") + target;
    return ir::intern({targets, first_->module, first_->type, first_->file, first_->line, first_->code});
  }

 private:
  const ir::Source* first_;
  std::vector<std::string> targets_;
};

}  // namespace

Driver::Driver(ir::Model& model, const Facts& facts, std::vector<const Pattern*> patterns,
               std::vector<PatternReport>& reports)
    : model_(model), facts_(facts), patterns_(std::move(patterns)), reports_(reports), refusals_(patterns_.size()) {
  for (std::size_t i = 0; i < patterns_.size(); ++i) {
    for (const std::string_view root : patterns_[i]->roots) {
      if (root != kAnyRoot) by_root_[std::string(root)].push_back(i);
    }
  }
  for (std::size_t i = 0; i < patterns_.size(); ++i) {
    if (std::ranges::find(patterns_[i]->roots, kAnyRoot) == patterns_[i]->roots.end()) continue;
    for_any_root_.push_back(i);
    for (auto& [root, rules] : by_root_) rules.push_back(i);
  }
  for (auto& [root, rules] : by_root_) std::ranges::sort(rules);
}

void Driver::run(ir::Graph& graph, Stage stage) {
  visits_.clear();
  enqueue_all(graph);
  applications_ = 0;
  most_applications_ = kMostForEachNode * queue_.size() + kMostForEachGraph;
  while (!queue_.empty()) {
    ir::Node* node = queue_.front();
    queue_.pop_front();
    queued_.erase(node);
    if (!is_gone(*node)) visit(*node, stage);
  }
  for (std::size_t i = 0; i < refusals_.size(); ++i) {
    for (const auto& [reason, times] : refusals_[i]) reports_[i].refusals[reason] += times;
    refusals_[i].clear();
  }
}

void Driver::enqueue_all(ir::Graph& graph) {
  for (ir::Node& node : graph) {
    for (ir::Graph* nested : node.subgraphs()) enqueue_all(*nested);
    enqueue(&node);
  }
}

void Driver::enqueue(ir::Node* node) {
  if (find_patterns(*node) == nullptr) return;
  if (queued_.insert(node).second) queue_.push_back(node);
}

const std::vector<std::size_t>* Driver::find_patterns(const ir::Node& node) const {
  if (node.is_torch() || is_return(node)) return nullptr;
  const auto found = by_root_.find(node.domain().empty() ? node.op() : node.qualified_name());
  const std::vector<std::size_t>& rules = found == by_root_.end() ? for_any_root_ : found->second;
  return rules.empty() ? nullptr : &rules;
}

void Driver::visit(ir::Node& node, Stage stage) {
  const std::vector<std::size_t>* rules = find_patterns(node);
  if (rules == nullptr || ++visits_[&node] > kMostVisits) return;
  for (const std::size_t i : *rules) {
    if (patterns_[i]->stage > stage || !try_pattern(i, node)) continue;
    if (!node.is_erased()) enqueue(&node);
    return;
  }
}

void Driver::require_end(const Pattern& pattern) {
  if (++applications_ <= most_applications_) return;
  throw InvalidArgument(fmt::format(
      "pattern '{}' was applied again and again ({} times in one graph): what it makes, it or another one matches anew",
      pattern.name, most_applications_));
}

// What torch or the standard library throw where a graph is not what its types say becomes an error that names the
// node. What a pattern of the user's own raises is passed on as it is.
bool Driver::try_pattern(std::size_t pattern, ir::Node& node) {
  const auto refuse = [&](std::string_view reason) {
    throw GraphError(fmt::format("pattern '{}' cannot look at {}: {}; check the model with its verifier",
                                 patterns_[pattern]->name, ir::describe(node), reason.substr(0, reason.find('\n'))));
  };
  try {
    return apply_pattern(pattern, node);
  } catch (const c10::Error& error) {
    refuse(error.what_without_backtrace());
  } catch (const std::logic_error& error) {
    refuse(error.what());
  } catch (const std::bad_alloc&) {
    refuse("there is not enough memory");
  }
  return false;
}

bool Driver::apply_pattern(std::size_t pattern, ir::Node& node) {
  const Clock::time_point begin = Clock::now();
  const auto matched = unless_overflow([&] { return std::optional(patterns_[pattern]->match(facts_, node)); });
  const Match match = matched.value_or(Match::no("a size does not fit into 64 bits"));
  if (match) {
    require_end(*patterns_[pattern]);
    Rewriter rewriter(model_, facts_, node);
    match.rewrite(rewriter);
    clean_up(rewriter, *patterns_[pattern]);
    ++reports_[pattern].applied;
  } else if (match.reason() != nullptr) {
    ++refusals_[pattern][match.reason()];
  } else {
    ++reports_[pattern].refusals[match.own_reason()];
  }
  reports_[pattern].seconds += seconds_since(begin);
  return static_cast<bool>(match);
}

// What nobody reads any more goes, with the nodes that it alone kept; those beside it are looked at again.
void Driver::clean_up(const Rewriter& rewriter, const Pattern& pattern) {
  std::vector<ir::Node*> doubtful = rewriter.replaced();
  doubtful.push_back(&rewriter.root());
  Provenance provenance(rewriter.root().source());
  while (!doubtful.empty()) {
    ir::Node* node = doubtful.back();
    doubtful.pop_back();
    if (node->is_erased() || is_return(*node)) continue;
    if (!is_dead(*node)) {
      enqueue(node);
      continue;
    }
    provenance.add(node->source());
    const std::vector<ir::Node*> producers = producers_of_inputs(*node);
    node->graph().erase(*node);
    doubtful.insert(doubtful.end(), producers.begin(), producers.end());
  }

  for (ir::Node* made : rewriter.made()) {
    if (made->is_erased()) continue;
    if (!made->domain().empty()) domains_.insert(made->domain());
    if (pattern.stage == Stage::kFuse) made->set_source(provenance.joined());
    enqueue(made);
  }

  for (ir::Node* reader : rewriter.changed()) {
    if (!reader->is_erased()) enqueue(reader);
  }
}

}  // namespace exportguard::optimizer
