// Values that are right but for their form, and what nodes behind them make of it.
#include <algorithm>
#include <unordered_set>

#include "exportguard/evaluator/evaluator.h"
#include "validation/search.h"

namespace exportguard::validation {

using evaluator::Value;

namespace {

bool takes_a_part(const ir::Node& node) {
  return node.is("", "Split") || node.is("", "Slice") || node.is("", "Gather");
}

}  // namespace

// A node that stops, or makes a wrong value, and does neither where what it reads has the form of the reference, is not
// at fault: whoever gave its operand another form is. From there on, each that would have had the right form from
// operands of right ones hands on the blame.
std::optional<std::size_t> Search::maker_of_form(const ir::Value& target, Likeness likeness) const {
  std::optional<std::size_t> blamed = form_that_mends(target, likeness);
  while (blamed) {
    const std::optional<std::size_t> behind = form_that_mends(*pairs_[*blamed].got, Likeness::kExact);
    if (!behind || *behind >= *blamed) return blamed;
    blamed = behind;
  }
  return std::nullopt;
}

// One operand alone tells most; where only all of them together mend, it is the first.
std::optional<std::size_t> Search::form_that_mends(const ir::Value& target, Likeness likeness) const {
  const Segment segment = segment_behind(target, given_);
  std::vector<std::size_t> others;  // places in the frontier
  for (std::size_t i = 0; i < segment.frontier.size(); ++i) {
    const auto pair = by_got_.find(segment.frontier[i]);
    if (pair != by_got_.end() && states_[pair->second].has_other_form) others.push_back(i);
  }
  if (others.empty()) return std::nullopt;

  const Contents own = reference_contents(segment.frontier);
  const Contents held = right_contents(segment.frontier);
  const auto mends = [&](std::span<const std::size_t> places) {
    Contents contents = held;
    for (const std::size_t place : places) contents[place] = own[place];
    return is_right_of(target, segment, contents, likeness);
  };
  const auto one = std::ranges::find_if(others, [&](const std::size_t& place) { return mends({&place, 1}); });
  if (one == others.end() && !mends(others)) return std::nullopt;
  return by_got_.at(segment.frontier[one == others.end() ? others.front() : *one]);
}

bool Search::is_right_of(const ir::Value& target, const Segment& segment, const Contents& contents,
                         Likeness likeness) const {
  ir::Model part = cut_out(model_, {&target}, &segment.frontier);
  fix_inputs(part, contents);
  try {
    const Contents got = run_part(part, contents, {});
    const auto pair = by_got_.find(&target);
    if (pair == by_got_.end()) return true;
    const Value expected = reference_contents({&target}).front();
    return judge(expected, got.front(), Likeness::kMeaning, options_.tolerance).agrees() &&
           (likeness == Likeness::kMeaning || has_form_of(expected, got.front()));
  } catch (const Error&) {
    return false;
  }
}

// In the reference's own form; values without one beside them are inputs.
Search::Contents Search::reference_contents(const std::vector<const ir::Value*>& values) const {
  Values asked;
  for (const ir::Value* value : values) {
    const auto pair = by_got_.find(value);
    if (pair != by_got_.end()) asked.insert(pairs_[pair->second].expected);
  }
  ReferenceRun again(reference_, inputs_, options_.device, asked);
  Contents contents;
  for (const ir::Value* value : values) {
    const auto pair = by_got_.find(value);
    contents.push_back(pair == by_got_.end() ? inputs_[value->output_index()]
                                             : content_of(*pairs_[pair->second].expected, again));
  }
  return contents;
}

// An output of another form, behind which no node made a wrong value.
std::optional<std::size_t> Search::output_of_other_form() const {
  const std::vector<const ir::Value*> outputs = outputs_of(*model_.graph);
  for (std::size_t i = 0; i < std::min(outputs.size(), report_.outputs.size()); ++i) {
    const auto pair = by_got_.find(outputs[i]);
    if (pair == by_got_.end() || report_.outputs[i].structural.empty()) continue;
    if (states_[pair->second].has_other_form) return pair->second;
  }
  return std::nullopt;
}

// Nodes of the place that other values were made of as well, and these are right.
std::vector<const ir::Node*> Search::cleared(const Divergence& divergence) const {
  std::vector<const ir::Node*> found;
  for (const ir::Node* node : divergence.nodes) {
    if (node != divergence.node && makes_right_values(*node, *divergence.node)) found.push_back(node);
  }
  return found;
}

// On other ways than through the one that makes the wrong value, and none that takes a part: the rest may be wrong.
bool Search::makes_right_values(const ir::Node& node, const ir::Node& wrong) const {
  std::vector<const ir::Node*> waiting{&node};
  std::unordered_set<const ir::Node*> seen{&wrong};
  while (!waiting.empty()) {
    const ir::Node* next = waiting.back();
    waiting.pop_back();
    for (std::size_t i = 0; i < next->output_count(); ++i) {
      for (const ir::Use* use : next->output(i).uses()) {
        const ir::Node* user = &use->user();
        if (&user->graph() != model_.graph.get() || !seen.insert(user).second || takes_a_part(*user)) continue;
        const auto pair = user->output_count() == 0 ? by_got_.end() : by_got_.find(&user->output());
        if (pair == by_got_.end()) {
          waiting.push_back(user);
        } else if (const auto& finding = states_[pair->second].of_right; finding && finding->agrees()) {
          return true;
        }
      }
    }
  }
  return false;
}

}  // namespace exportguard::validation
