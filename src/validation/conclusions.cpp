// What the runs of a search tell.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/rand_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>

#include "exportguard/common/torch_dtypes.h"
#include "exportguard/evaluator/evaluator.h"
#include "exportguard/ir/inference.h"
#include "validation/bodies.h"
#include "validation/search.h"

namespace exportguard::validation {
namespace {

using evaluator::Value;

constexpr std::size_t kMostFurther = 16;
constexpr std::size_t kMostTried = 24;    // values whose nodes are run by themselves
constexpr std::size_t kMostRemade = 8;    // nodes that make a value that only the model reads
constexpr double kBeyondRounding = 16.0;  // times the noise of inputs that are off by half a unit

double root_mean_square(const at::Tensor& tensor) {
  const at::Tensor values = tensor.to(at::kDouble);
  const at::Tensor finite = values.masked_select(values.isfinite());
  return finite.numel() == 0 ? 0.0 : std::sqrt(finite.square().mean().item<double>());
}

double epsilon_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return std::numeric_limits<double>::epsilon();
    case at::kHalf:
      return 9.765625e-4;
    case at::kBFloat16:
      return 7.8125e-3;
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

/// Each float moved by up to a unit in the last place.
Value jittered(const Value& value) {
  const ir::Tensor* tensor = value.find_tensor();
  const bool has_reals = tensor != nullptr && is_floating(tensor->dtype()) && bit_width(tensor->dtype()) >= 16;
  if (!has_reals) return value;
  const at::Tensor wide = tensor->aten().to(at::kDouble);
  const at::Tensor step = at::rand_like(wide).mul_(2).sub_(1).mul_(epsilon_of(tensor->aten().scalar_type()));
  return ir::Tensor((wide + wide * step).to(tensor->aten().scalar_type()));
}

bool have_bodies(const std::vector<const ir::Node*>& nodes) {
  return std::ranges::any_of(nodes, [](const ir::Node* node) { return !node->subgraphs().empty(); });
}

bool reads_a_value(const ir::Node& node) {
  const ir::Value* input = node.input_count() == 0 ? nullptr : node.find_input(0);
  return input != nullptr && ir::constant_of(*input) == nullptr;
}

/// The first of the nodes that the model has too many, where the others are those of the reference in their order: of a
/// value that goes through a narrower dtype on its way, or is computed with once too often. An operator that the
/// reference has as well may be either of the two, and one that a constant goes through is another way to write it.
const ir::Node* find_surplus(const std::vector<const ir::Node*>& nodes, const std::vector<const ir::Node*>& reference) {
  const auto computes = [](const ir::Node* node) { return !node->is("", "Constant"); };
  std::vector<const ir::Node*> wanted;
  std::ranges::copy_if(reference, std::back_inserter(wanted), computes);

  const ir::Node* surplus = nullptr;
  auto next = wanted.begin();
  for (const ir::Node* node : nodes) {
    if (!computes(node)) continue;
    const auto is_same = [node](const ir::Node* other) { return other->qualified_name() == node->qualified_name(); };
    if (next != wanted.end() && is_same(*next)) {
      ++next;
      continue;
    }
    if (std::ranges::any_of(wanted, is_same) || !reads_a_value(*node)) return nullptr;
    if (surplus == nullptr) surplus = node;
  }
  return next == wanted.end() ? surplus : nullptr;
}

/// How far the value is off for its size: the inverse of the signal to noise.
double inexactness(const Finding& finding) {
  return finding.figures.count == 0 ? 0.0 : std::pow(10.0, -finding.figures.signal_to_noise / 20.0);
}

}  // namespace

bool Search::differs_somewhere() const {
  return !report_.outputs_agree() || std::ranges::any_of(states_, [](const State& state) {
    return (state.in_runtime && !state.in_runtime->agrees()) || (state.of_right && !state.of_right->agrees());
  });
}

// Whether the model is given the reference's value: where it is one for certain, and where both agree.
bool Search::is_given(std::size_t pair) const {
  const auto agrees = [](const std::optional<Finding>& finding) { return finding && finding->agrees(); };
  const State& state = states_[pair];
  return pairs_[pair].is_sure || pairs_[pair].is_chance || agrees(state.in_runtime) || agrees(state.of_right);
}

// A pair that stands together by its names alone may be no pair; it counts where outputs are wrong as well.
bool Search::is_wrong(std::size_t pair) const {
  const auto& finding = states_[pair].of_right;
  if (!finding || finding->agrees()) return false;
  return pairs_[pair].is_sure || !report_.outputs_agree();
}

std::optional<std::size_t> Search::find_first_wrong() const {
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    if (is_wrong(i)) return i;
  }
  return std::nullopt;
}

void Search::conclude() {
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    if (!is_given(i)) continue;
    given_.insert(pairs_[i].got);
    given_expected_.insert(pairs_[i].expected);
  }

  const std::optional<std::size_t> first = find_first_wrong();
  for (std::size_t i = first.value_or(pairs_.size()) + 1; i < pairs_.size(); ++i) {
    if (!is_wrong(i) || report_.further.size() >= kMostFurther) continue;
    report_.further.push_back(*states_[i].of_right);
    report_.further.back().name = pairs_[i].got->name();
  }

  if (first) return conclude_first(maker_of_form(*pairs_[*first].got).value_or(*first));
  if (report_.outputs_agree()) return;
  if (stopped_at_ != nullptr && stopped_at_->output_count() > 0) return conclude_stopped();
  if (const auto output = output_of_other_form()) {
    return conclude_first(maker_of_form(*pairs_[*output].got, Likeness::kExact).value_or(*output));
  }
  if (options_.run && is_right_in_evaluator() && conclude_runtime()) return;
  conclude_by_rounding();
  if (options_.run && !report_.first) conclude_runtime();
}

// Where the graph makes wrong outputs in the evaluator as well, it is not the runtime that is to blame first.
bool Search::is_right_in_evaluator() const {
  const std::vector<const ir::Value*> expected = outputs_of(*reference_.graph);
  try {
    const Contents got = run_as_it_is();
    for (std::size_t i = 0; i < std::min(expected.size(), got.size()); ++i) {
      const Value& right = expected_outputs_.at(expected[i]);
      if (!judge(right, got[i], Likeness::kExact, options_.tolerance).agrees()) return false;
    }
  } catch (const Error&) {  // it tells nothing
  }
  return true;
}

void Search::conclude_first(std::size_t pair) {
  Divergence& first = report_.first.emplace(divergence_at(*pairs_[pair].got, pairs_[pair].expected));
  fill_figures(first, pair, {});
  first.finding = *states_[pair].of_right;  // of the reference's value as it is, not in the form of the model's
  if (first.finding.agrees() && first.got) {
    first.expected = reference_contents({pairs_[pair].got}).front();
    first.finding = judge(first.expected, *first.got, Likeness::kExact, options_.tolerance);
  }
  first.finding.name = pairs_[pair].got->name();
  const ir::Node* surplus = find_surplus(first.nodes, first.reference_nodes);
  if (surplus != nullptr) first.node = surplus;
  const bool has_bodies = have_bodies(first.nodes);
  if (first.nodes.size() > 1 || has_bodies) first.beside = beside(pair);
  if (has_bodies && first.beside) first.inside = look_inside(*first.beside, options_);
}

// The first value that would have been made of the node's tells what stands beside it.
void Search::conclude_stopped() {
  if (const auto maker = maker_of_form(stopped_at_->output())) return conclude_first(*maker);
  const auto found = by_got_.find(&stopped_at_->output());
  report_.first =
      divergence_at(stopped_at_->output(), found == by_got_.end() ? nullptr : pairs_[found->second].expected);
  report_.first->error = stopped_because_;
  report_.first->finding.structural = "it cannot be run";
  report_.first->inside = stopped_inside_;
  const bool has_bodies = have_bodies(report_.first->nodes);
  if (report_.first->nodes.size() < 2 && !has_bodies) return;
  const auto behind = std::ranges::find_if(pairs_, [this](const AlignedPair& pair) {
    if (right_.find(by_got_.at(pair.got)) != nullptr || pair.expected->producer() == nullptr) return false;
    const std::vector<const ir::Node*> nodes = segment_behind(*pair.got, given_).nodes;
    return std::ranges::find(nodes, stopped_at_) != nodes.end();
  });
  if (behind == pairs_.end()) return;
  report_.first->beside = beside(static_cast<std::size_t>(behind - pairs_.begin()));
  if (!has_bodies || !report_.first->beside) return;
  if (auto inside = look_inside(*report_.first->beside, options_)) report_.first->inside = std::move(inside);
}

// The graph is right in the evaluator: the runtime is looked at from its first wrong value on.
bool Search::conclude_runtime() {
  std::size_t tried = 0;
  std::optional<Divergence> first;  // right by itself: the runtime does another thing with the nodes around it

  for (std::size_t i = 0; i < pairs_.size() && tried < kMostTried; ++i) {
    const auto& seen = states_[i].in_runtime;
    if (!seen || seen->agrees()) continue;
    ++tried;
    Divergence candidate = divergence_at(*pairs_[i].got, pairs_[i].expected);
    fill_figures(candidate, i, options_.run);
    candidate.is_runtimes_own = true;
    if (!candidate.finding.agrees() || !candidate.error.empty()) {
      report_.first = std::move(candidate);
      return true;
    }
    candidate.finding = *seen;
    candidate.finding.name = pairs_[i].got->name();
    if (!first) first = std::move(candidate);
  }

  report_.first = std::move(first);
  return report_.first.has_value();
}

// No node is beyond its tolerance, but all together are: the one whose error is most beyond the noise of its inputs.
void Search::conclude_by_rounding() {
  for (const std::size_t pair : least_exact()) {
    Divergence candidate = divergence_at(*pairs_[pair].got, pairs_[pair].expected);
    fill_figures(candidate, pair, {});
    candidate.times_rounding = times_rounding(candidate);
    const double least = report_.first ? report_.first->times_rounding : kBeyondRounding;
    if (candidate.times_rounding > least) report_.first = std::move(candidate);
  }
}

std::vector<std::size_t> Search::least_exact() const {
  std::vector<std::size_t> pairs;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const auto& finding = states_[i].of_right;
    if (finding && inexactness(*finding) > 0.0) pairs.push_back(i);
  }
  std::ranges::stable_sort(pairs, std::greater(), [&](std::size_t i) { return inexactness(*states_[i].of_right); });
  if (pairs.size() > kMostTried) pairs.resize(kMostTried);
  return pairs;
}

double Search::times_rounding(const Divergence& divergence) const {
  const ir::Tensor* expected = divergence.expected.find_tensor();
  const ir::Tensor* got = divergence.got ? divergence.got->find_tensor() : nullptr;
  const bool has_reals =
      expected != nullptr && got != nullptr && is_floating(expected->dtype()) && expected->shape() == got->shape();
  if (!has_reals) return 0.0;

  std::vector<Value> moved;
  for (const NamedValue& input : divergence.inputs) moved.push_back(jittered(input.content));
  const std::vector<Value> again = run_part(divergence.reproduction, moved, {});
  const at::Tensor have = got->aten().to(at::kDouble);
  const double noise = root_mean_square(again.front().tensor().aten().to(at::kDouble) - have);
  const double floor = 0.25 * epsilon_of(got->aten().scalar_type()) * root_mean_square(have);
  const double error = root_mean_square(have - expected->aten().to(at::kDouble));
  return error / std::max({noise, floor, std::numeric_limits<double>::min()});
}

// ------------------------------------------------------------------------------------------------ one divergence

Divergence Search::divergence_at(const ir::Value& got, const ir::Value* expected) {
  const Segment segment = segment_behind(got, given_);
  Divergence divergence;
  divergence.node = got.producer();
  divergence.nodes = segment.nodes;
  divergence.cleared = cleared(divergence);
  divergence.finding.name = got.name();
  if (expected != nullptr && expected->producer() != nullptr) {
    divergence.reference_node = expected->producer();
    divergence.reference_nodes = segment_behind(*expected, given_expected_).nodes;
  }
  divergence.reproduction = cut_out(model_, {&got}, &segment.frontier);

  const Contents contents = right_contents(segment.frontier);
  for (std::size_t i = 0; i < contents.size(); ++i) {
    divergence.inputs.push_back({divergence.reproduction.graph->input(i).name(), contents[i]});
  }
  fix_inputs(divergence.reproduction, contents);
  return divergence;
}

// The wrong value by the nodes alone, beside the right one.
void Search::fill_figures(Divergence& divergence, std::size_t pair, const RunModel& runtime) {
  const std::string name = divergence.finding.name;
  divergence.expected = right_contents({pairs_[pair].got}).front();
  Contents contents;
  for (const NamedValue& input : divergence.inputs) contents.push_back(input.content);
  try {
    divergence.got = run_part(divergence.reproduction, contents, runtime).front();
    divergence.finding = judge(divergence.expected, *divergence.got, Likeness::kMeaning, options_.tolerance);
    if (const auto formed = in_form_of(divergence.expected, *divergence.got)) divergence.expected = *formed;
  } catch (const Error& error) {
    divergence.error = error.what();
  }
  divergence.finding.name = name;
}

// Values of the model in the place of which the reference's stand; those that were let go are made again.
Search::Contents Search::right_contents(const std::vector<const ir::Value*>& values) const {
  Values asked;
  for (const ir::Value* value : values) {
    const auto pair = by_got_.find(value);
    if (pair != by_got_.end() && right_.find(pair->second) == nullptr) asked.insert(pairs_[pair->second].expected);
  }
  std::optional<ReferenceRun> again;
  if (!asked.empty()) again.emplace(reference_, inputs_, options_.device, asked);

  Contents contents;
  for (const ir::Value* value : values) {
    const auto pair = by_got_.find(value);
    if (pair == by_got_.end()) {
      contents.push_back(inputs_[value->output_index()]);
    } else if (const Value* held = right_.find(pair->second)) {
      contents.push_back(*held);
    } else {
      const Value content = content_of(*pairs_[pair->second].expected, *again);
      contents.push_back(in_form_of(content, right_.form(pair->second)).value_or(content));
    }
  }
  return contents;
}

// Numbers of a program are left to be computed: an input of a model is a tensor.
std::optional<Beside> Search::beside(std::size_t pair) const {
  Values given;
  Values given_expected;
  std::map<const ir::Value*, const ir::Value*> by_expected;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    by_expected.emplace(&reference_.graph->input(i), &model_.graph->input(i));
  }
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const ir::Type& type = pairs_[i].expected->type();
    if (!is_given(i) || type.is_scalar || type.kind != ir::Type::Kind::kTensor) continue;
    given.insert(pairs_[i].got);
    given_expected.insert(pairs_[i].expected);
    by_expected.emplace(pairs_[i].expected, pairs_[i].got);
  }
  Segment of_model = segment_behind(*pairs_[pair].got, given);
  Segment of_reference = segment_behind(*pairs_[pair].expected, given_expected);

  // What the model reads and the reference makes anew (the optimizer left out the second of two) is made on both sides.
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    const Values read(of_reference.frontier.begin(), of_reference.frontier.end());
    for (const ir::Value* value : of_model.frontier) {
      const auto found = by_got_.find(value);
      if (found == by_got_.end() || read.contains(pairs_[found->second].expected)) continue;
      if (segment_behind(*value, given).nodes.size() > kMostRemade) continue;
      given.erase(value);
      given_expected.erase(pairs_[found->second].expected);
      by_expected.erase(pairs_[found->second].expected);
      is_changed = true;
    }
    if (!is_changed) break;
    of_model = segment_behind(*pairs_[pair].got, given);
    of_reference = segment_behind(*pairs_[pair].expected, given_expected);
  }

  const Values read_by_model(of_model.frontier.begin(), of_model.frontier.end());
  std::vector<const ir::Value*> expected_inputs = of_reference.frontier;
  std::vector<const ir::Value*> got_inputs;
  for (const ir::Value* value : expected_inputs) got_inputs.push_back(by_expected.at(value));
  for (const auto& [expected, got] : by_expected) {
    if (!read_by_model.contains(got) || std::ranges::find(got_inputs, got) != got_inputs.end()) continue;
    expected_inputs.push_back(expected);
    got_inputs.push_back(got);
  }
  return Beside{cut_out(reference_, {pairs_[pair].expected}, &expected_inputs),
                cut_out(model_, {pairs_[pair].got}, &got_inputs), right_contents(got_inputs)};
}

}  // namespace exportguard::validation
