#include "validation/bodies.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "exportguard/evaluator/evaluator.h"
#include "validation/alignment.h"
#include "validation/judgement.h"
#include "validation/segment.h"

namespace exportguard::validation {
namespace {

using evaluator::Value;
using ir::Graph;
using ir::Node;

/// Names of the same body, of torch and of ONNX.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kSameBodies{
    {{"true_fn", "then_branch"}, {"false_fn", "else_branch"}, {"body_fn", "body"}}};

constexpr std::size_t kMostForms = 24;  // values of another form that are tried, each in a run of the place

using Bodies = std::vector<std::pair<std::string_view, const Graph*>>;

Bodies bodies_of(const Node& node) {
  Bodies bodies;
  for (const auto& [name, attribute] : node.attributes()) {
    const auto* body = std::get_if<std::unique_ptr<Graph>>(&attribute);
    if (body != nullptr) bodies.emplace_back(name, body->get());
  }
  return bodies;
}

const Graph* body_beside(const Bodies& all, std::string_view name) {
  for (const auto& [other, body] : all) {
    const std::pair names(other, name);
    if (other == name || std::ranges::find(kSameBodies, names) != kSameBodies.end()) return body;
  }
  return all.size() == 1 ? all.front().second : nullptr;  // of a scan, which torch numbers
}

/// Pairs of values of all bodies of two graphs, nested ones included.
class BodyAligner {
 public:
  void add_graphs(const Graph& reference, const Graph& model, const std::vector<AlignedPair>& pairs) {
    add_nodes_of(pairs, pairs);
    if (found_.empty()) add_sole_nodes(reference, model, pairs);
  }

  const std::vector<AlignedPair>& found() const { return found_; }

 private:
  // A node stands in as many pairs as it has outputs that are read.
  void add_nodes_of(const std::vector<AlignedPair>& pairs, const std::vector<AlignedPair>& around) {
    std::unordered_set<const Node*> seen;
    for (const AlignedPair& pair : pairs) {
      const Node* expected = pair.expected->producer();
      const Node* got = pair.got->producer();
      if (expected != nullptr && seen.insert(got).second) add_nodes(*expected, *got, around);
    }
  }

  void add_nodes(const Node& reference, const Node& model, const std::vector<AlignedPair>& around) {
    const Bodies expected = bodies_of(reference);
    for (const auto& [name, body] : bodies_of(model)) {
      const Graph* other = body_beside(expected, name);
      if (other == nullptr) continue;
      const bool is_same = reference.qualified_name() == model.qualified_name();
      const std::vector<AlignedPair> pairs = align_bodies(*other, *body, is_same, around);
      found_.insert(found_.end(), pairs.begin(), pairs.end());
      std::vector<AlignedPair> all = around;
      all.insert(all.end(), pairs.begin(), pairs.end());
      add_nodes_of(pairs, all);
    }
  }

  // Where other nodes stand between a body and what is aligned, one node with bodies on each side is the same.
  void add_sole_nodes(const Graph& reference, const Graph& model, const std::vector<AlignedPair>& around) {
    const Node* expected = sole_node_with_bodies(reference);
    const Node* got = sole_node_with_bodies(model);
    if (expected != nullptr && got != nullptr) add_nodes(*expected, *got, around);
  }

  static const Node* sole_node_with_bodies(const Graph& graph) {
    const Node* found = nullptr;
    for (const Node& node : graph) {
      if (node.subgraphs().empty()) continue;
      if (found != nullptr) return nullptr;
      found = &node;
    }
    return found;
  }

  std::vector<AlignedPair> found_;
};

/// What values of bodies are in each iteration, as far as there is room.
class Recording {
 public:
  Recording(const std::vector<AlignedPair>& pairs, std::size_t most_bytes) : most_bytes_(most_bytes) {
    for (const AlignedPair& pair : pairs) contents_[pair.expected];
  }

  void add(const ir::Value& value, const Value& content) {
    const auto found = contents_.find(&value);
    if (found == contents_.end()) return;
    bytes_ += bytes_of(content);
    is_full_ = is_full_ || bytes_ > most_bytes_;
    if (!is_full_) found->second.push_back(content);
  }

  std::size_t count(const ir::Value& value) const { return contents_.at(&value).size(); }
  bool is_full() const { return is_full_; }

  const Value* find(const ir::Value& value, std::size_t iteration) const {
    const std::vector<Value>& contents = contents_.at(&value);
    return iteration < contents.size() ? &contents[iteration] : nullptr;
  }

 private:
  std::unordered_map<const ir::Value*, std::vector<Value>> contents_;
  std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  bool is_full_ = false;
};

/// Gives bodies right values, and notes the first that they make wrongly.
class Inspection {
 public:
  Inspection(const std::vector<AlignedPair>& pairs, const Recording& right, const DivergenceOptions& options)
      : right_(right), options_(options) {
    for (const AlignedPair& pair : pairs) by_got_.emplace(pair.got, Seen{&pair});
  }

  /// What reads the value is given that of the reference, as it is there, although it is not sure that it is the one
  /// beside it, or although it is right but for its form.
  void trust(const ir::Value& value) { by_got_.at(&value).is_trusted = true; }

  std::optional<Value> replace(const ir::Value& value, const Value& got) {
    const auto found = by_got_.find(&value);
    if (found == by_got_.end()) return std::nullopt;
    Seen& seen = found->second;
    const AlignedPair& pair = *seen.pair;
    const std::size_t iteration = seen.times++;
    const Value* expected = right_.find(*pair.expected, iteration);
    if (expected == nullptr) return std::nullopt;
    if (seen.is_trusted) return *expected;

    Finding finding;
    if (!pair.is_chance) finding = judge(*expected, got, Likeness::kMeaning, options_.tolerance);
    if (!finding.agrees()) note(pair, iteration, finding);
    seen.has_other_form = seen.has_other_form || !has_form_of(*expected, got);
    if (!pair.is_sure && !pair.is_chance && !finding.agrees()) {
      seen.is_own = true;
      return std::nullopt;
    }
    auto formed = in_form_of(*expected, got);
    return formed ? std::move(formed) : *expected;
  }

  /// The first wrong value of a sure pair, and of another one before it.
  const std::optional<Inside>& sure() const { return sure_; }
  const std::optional<Inside>& other() const { return other_; }
  std::size_t count(const ir::Value& value) const { return by_got_.at(&value).times; }
  bool has_other_form(const ir::Value& value) const { return by_got_.at(&value).has_other_form; }

  /// Values that stood in the place of the model's own in every iteration.
  Values given() const {
    Values values;
    for (const auto& [value, seen] : by_got_) {
      if (!seen.is_own) values.insert(value);
    }
    return values;
  }

 private:
  struct Seen {
    const AlignedPair* pair;
    std::size_t times = 0;
    bool is_trusted = false;
    bool is_own = false;  ///< in one iteration at the least
    bool has_other_form = false;
  };

  void note(const AlignedPair& pair, std::size_t iteration, const Finding& finding) {
    std::optional<Inside>& place = pair.is_sure ? sure_ : other_;
    if (place || sure_) return;
    place = Inside{pair.got->producer(), pair.expected->producer(), iteration, finding, {}};
    place->finding.name = pair.got->name();
  }

  std::unordered_map<const ir::Value*, Seen> by_got_;
  const Recording& right_;
  const DivergenceOptions& options_;
  std::optional<Inside> sure_;
  std::optional<Inside> other_;
};

/// The condition of a loop that goes on for longer, or for less, though each value in it is right.
std::optional<Inside> other_end(const std::vector<AlignedPair>& pairs, const Recording& right,
                                const Inspection& inspection) {
  for (const AlignedPair& pair : pairs) {
    const Graph& body = pair.got->graph();
    const std::size_t expected = right.count(*pair.expected);
    const std::size_t got = inspection.count(*pair.got);
    const bool is_loop = body.parent() != nullptr && body.parent()->is("", "Loop") && body.output_count() > 0;
    if (right.is_full() || expected == got || !is_loop) continue;
    const ir::Value* condition = body.find_output(0);
    if (condition == nullptr || condition->producer() == nullptr) continue;
    Inside inside{condition->producer(), nullptr, std::min(expected, got), {}, {}};
    inside.finding.name = condition->name();
    inside.finding.structural = fmt::format("{} iterations instead of {}", got, expected);
    return inside;
  }
  return std::nullopt;
}

/// The value of the node that was wrong; where it has several, the one that the finding names.
const ir::Value& value_of(const Inside& inside) {
  for (std::size_t i = 0; i < inside.node->output_count(); ++i) {
    if (inside.node->output(i).name() == inside.finding.name) return inside.node->output(i);
  }
  return inside.node->output();
}

/// What a run of the model's place on right values came to.
struct Outcome {
  std::optional<Inside> wrong;    ///< the first value that is not right
  std::optional<Inside> stopped;  ///< a node of a body that could not be run
  bool has_ended = false;
  bool has_right_form = false;  ///< the value that the place makes

  bool is_right() const { return !wrong && has_ended && has_right_form; }
};

bool is_same_place(const std::optional<Inside>& a, const std::optional<Inside>& b) {
  return a.has_value() == b.has_value() && (!a || (a->node == b->node && a->iteration == b->iteration));
}

/// One place of two models, and what the reference makes in its bodies.
class Bodywork {
 public:
  Bodywork(const Beside& place, const DivergenceOptions& options, const std::vector<AlignedPair>& pairs)
      : place_(place), options_(options), pairs_(pairs), right_(pairs, options.window) {}

  std::optional<Inside> first() {
    if (!record()) return std::nullopt;
    Inspection inspection(pairs_, right_, options_);
    const Outcome outcome = run(inspection);

    std::optional<Inside> found = maker_of_form(inspection, outcome);
    if (!found && inspection.other() && is_at_fault(*inspection.other(), outcome)) found = inspection.other();
    if (!found) found = outcome.wrong;
    if (!found && !outcome.stopped) found = other_end(pairs_, right_, inspection);
    if (!found) found = outcome.stopped;
    if (found && found->node->output_count() > 0) {
      found->nodes = segment_behind(value_of(*found), inspection.given()).nodes;
    }
    return found;
  }

 private:
  bool record() {
    const auto note = [this](const ir::Value& value, const Value& content) { right_.add(value, content); };
    try {
      expected_ = evaluator::run(place_.reference, place_.inputs,
                                 {.device = options_.device, .observer = note, .substitute = {}});
      return true;
    } catch (const Error&) {  // the node as a whole is named in any case
      return false;
    }
  }

  Outcome run(Inspection& inspection) const {
    const auto replace = [&](const ir::Value& value, const Value& got) { return inspection.replace(value, got); };
    Outcome outcome;
    try {
      const std::vector<Value> got = evaluator::run(place_.model, place_.inputs,
                                                    {.device = options_.device, .observer = {}, .substitute = replace});
      outcome.has_ended = true;
      outcome.has_right_form = std::ranges::equal(expected_, got, has_form_of);
    } catch (const evaluator::EvaluationError& error) {
      outcome.stopped = stopped_inside(error);
    } catch (const Error&) {  // as of the reference
    }
    outcome.wrong = inspection.sure();
    return outcome;
  }

  Outcome run_trusting(const ir::Value& value) const {
    Inspection inspection(pairs_, right_, options_);
    inspection.trust(value);
    return run(inspection);
  }

  // Two values that stand beside each other by their readers or names alone may be two things. They are one if what
  // reads the value of the reference in its place does not go wrong there as it did.
  bool is_at_fault(const Inside& other, const Outcome& before) const {
    if (!before.wrong && !before.stopped) return true;
    const Outcome after = run_trusting(value_of(other));
    if (after.stopped && !before.stopped) return false;
    return !is_same_place(before.wrong, after.wrong) || !is_same_place(before.stopped, after.stopped);
  }

  // A value that is right but for its form makes what reads it stop, or wrong, or of another form. From the first such
  // value on, each of them mends that in the form that it has in the reference.
  std::optional<Inside> maker_of_form(const Inspection& inspection, const Outcome& before) const {
    if (before.is_right()) return std::nullopt;
    std::size_t tried = 0;
    for (const AlignedPair& pair : pairs_) {
      if (pair.is_chance || pair.got->producer() == nullptr || !inspection.has_other_form(*pair.got)) continue;
      if (++tried > kMostForms) return std::nullopt;
      const Outcome after = run_trusting(*pair.got);
      if (!after.is_right()) continue;
      Inside inside{pair.got->producer(), pair.expected->producer(), 0, {}, {}};
      inside.finding.name = pair.got->name();
      inside.finding.structural = "a value of another form";
      return inside;
    }
    return std::nullopt;
  }

  const Beside& place_;
  const DivergenceOptions& options_;
  const std::vector<AlignedPair>& pairs_;
  Recording right_;
  std::vector<Value> expected_;
};

}  // namespace

std::optional<Inside> stopped_inside(const evaluator::EvaluationError& error) {
  const Node* node = error.node();
  if (node == nullptr || node->graph().parent() == nullptr) return std::nullopt;
  Inside inside{node, nullptr, 0, {}, {node}};
  inside.finding.structural = error.what();
  return inside;
}

std::optional<Inside> look_inside(const Beside& place, const DivergenceOptions& options) {
  BodyAligner aligner;
  aligner.add_graphs(*place.reference.graph, *place.model.graph, align(*place.reference.graph, *place.model.graph));
  if (aligner.found().empty()) return std::nullopt;

  return Bodywork(place, options, aligner.found()).first();
}

}  // namespace exportguard::validation
