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

namespace exportguard::validation {
namespace {

using evaluator::Value;
using ir::Graph;
using ir::Node;

/// Names of the same body, of torch and of ONNX.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kSameBodies{
    {{"true_fn", "then_branch"}, {"false_fn", "else_branch"}, {"body_fn", "body"}}};

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
    for (const AlignedPair& pair : pairs) by_got_.emplace(pair.got, Seen{&pair, 0});
  }

  std::optional<Value> replace(const ir::Value& value, const Value& got) {
    const auto found = by_got_.find(&value);
    if (found == by_got_.end()) return std::nullopt;
    const AlignedPair& pair = *found->second.pair;
    const std::size_t iteration = found->second.times++;
    const Value* expected = right_.find(*pair.expected, iteration);
    if (expected == nullptr) return std::nullopt;

    Finding finding;
    if (!pair.is_chance) finding = judge(*expected, got, Likeness::kMeaning, options_.tolerance);
    if (!finding.agrees()) note(pair, iteration, finding);
    const bool is_given = pair.is_sure || pair.is_chance || finding.agrees();
    return is_given ? in_form_of(*expected, got) : std::nullopt;
  }

  std::optional<Inside> first() const { return sure_ ? sure_ : other_; }
  std::size_t count(const ir::Value& value) const { return by_got_.at(&value).times; }

 private:
  struct Seen {
    const AlignedPair* pair;
    std::size_t times;
  };

  void note(const AlignedPair& pair, std::size_t iteration, const Finding& finding) {
    std::optional<Inside>& place = pair.is_sure ? sure_ : other_;
    if (place) return;
    place = Inside{pair.got->producer(), pair.expected->producer(), iteration, finding};
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
    Inside inside{condition->producer(), nullptr, std::min(expected, got), {}};
    inside.finding.name = condition->name();
    inside.finding.structural = fmt::format("{} iterations instead of {}", got, expected);
    return inside;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Inside> stopped_inside(const evaluator::EvaluationError& error) {
  const Node* node = error.node();
  if (node == nullptr || node->graph().parent() == nullptr) return std::nullopt;
  Inside inside{node, nullptr, 0, {}};
  inside.finding.structural = error.what();
  return inside;
}

std::optional<Inside> look_inside(const Beside& place, const DivergenceOptions& options) {
  BodyAligner aligner;
  aligner.add_graphs(*place.reference.graph, *place.model.graph, align(*place.reference.graph, *place.model.graph));
  if (aligner.found().empty()) return std::nullopt;

  Recording right(aligner.found(), options.window);
  const auto record = [&](const ir::Value& value, const Value& content) { right.add(value, content); };
  Inspection inspection(aligner.found(), right, options);
  const auto replace = [&](const ir::Value& value, const Value& got) { return inspection.replace(value, got); };
  try {
    evaluator::run(place.reference, place.inputs, {.device = options.device, .observer = record, .substitute = {}});
    evaluator::run(place.model, place.inputs, {.device = options.device, .observer = {}, .substitute = replace});
  } catch (const evaluator::EvaluationError& error) {  // what was seen until then tells more
    return inspection.first() ? inspection.first() : stopped_inside(error);
  } catch (const Error&) {  // the node as a whole is named in any case
    return inspection.first();
  }
  return inspection.first() ? inspection.first() : other_end(aligner.found(), right, inspection);
}

}  // namespace exportguard::validation
