// What the runs of a search tell.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/rand_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "exportguard/common/torch_dtypes.h"
#include "exportguard/evaluator/evaluator.h"
#include "validation/search.h"

namespace exportguard::validation {
namespace {

using evaluator::Value;

constexpr std::size_t kMostFurther = 16;
constexpr std::size_t kMostTried = 24;    // values whose nodes are run by themselves
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

/// How far the value is off for its size: the inverse of the signal to noise.
double inexactness(const Finding& finding) {
  return finding.figures.count == 0 ? 0.0 : std::pow(10.0, -finding.figures.signal_to_noise / 20.0);
}

}  // namespace

bool Search::differs_somewhere() const {
  return !report_.outputs_agree() ||
         std::ranges::any_of(states_, [](const State& state) { return state.as_it_is && !state.as_it_is->agrees(); });
}

// Whether the model is given the reference's value: where it is one for certain, and where both agree.
bool Search::is_given(std::size_t pair) const {
  const auto& seen = states_[pair].as_it_is;
  return pairs_[pair].is_sure || pairs_[pair].is_chance || (seen && seen->agrees());
}

// A pair that stands together by its names alone may be no pair; it counts where outputs are wrong as well.
bool Search::is_wrong(std::size_t pair) const {
  const auto& finding = states_[pair].of_right;
  if (!finding || finding->agrees()) return false;
  return pairs_[pair].is_sure || !report_.outputs_agree();
}

void Search::conclude() {
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    if (!is_wrong(i)) continue;
    if (!first) {
      first = i;
    } else if (report_.further.size() < kMostFurther) {
      report_.further.push_back(*states_[i].of_right);
      report_.further.back().name = pairs_[i].got->name();
    }
  }
  if (first) {
    report_.first = divergence_at(*pairs_[*first].got, pairs_[*first].expected);
    fill_figures(*report_.first, pairs_[*first].expected, {});
    return;
  }
  if (stopped_at_ != nullptr && !stopped_because_.empty()) return conclude_stopped();
  if (report_.outputs_agree()) return;
  if (options_.run && conclude_runtime()) return;
  conclude_by_rounding();
}

void Search::conclude_stopped() {
  const auto found = by_got_.find(&stopped_at_->output());
  report_.first =
      divergence_at(stopped_at_->output(), found == by_got_.end() ? nullptr : pairs_[found->second].expected);
  report_.first->error = stopped_because_;
  report_.first->finding.structural = "it cannot be run";
}

// The graph is right in the evaluator: the runtime is looked at from its first wrong value on.
bool Search::conclude_runtime() {
  std::size_t tried = 0;
  std::optional<Divergence> first;  // right by itself: the runtime does another thing with the nodes around it
  for (std::size_t i = 0; i < pairs_.size() && tried < kMostTried; ++i) {
    const auto& seen = states_[i].as_it_is;
    if (!seen || seen->agrees()) continue;
    ++tried;
    Divergence candidate = divergence_at(*pairs_[i].got, pairs_[i].expected);
    fill_figures(candidate, pairs_[i].expected, options_.run);
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
    fill_figures(candidate, pairs_[pair].expected, {});
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

Values Search::given_values() const {
  Values values;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    if (is_given(i)) values.insert(pairs_[i].got);
  }
  return values;
}

std::vector<const ir::Node*> Search::reference_nodes(const ir::Value& expected) const {
  Values given;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    if (is_given(i)) given.insert(pairs_[i].expected);
  }
  return expected.producer() == nullptr ? std::vector<const ir::Node*>() : segment_behind(expected, given).nodes;
}

Divergence Search::divergence_at(const ir::Value& got, const ir::Value* expected) {
  const Segment segment = segment_behind(got, given_values());
  Divergence divergence;
  divergence.node = got.producer();
  divergence.nodes = segment.nodes;
  divergence.finding.name = got.name();
  if (expected != nullptr) {
    divergence.reference_node = expected->producer();
    divergence.reference_nodes = reference_nodes(*expected);
  }
  divergence.reproduction = cut_out(model_, {&got}, &segment.frontier);
  fill_inputs(divergence, segment);
  return divergence;
}

void Search::fill_inputs(Divergence& divergence, const Segment& segment) {
  Values asked;
  for (const ir::Value* value : segment.frontier) {
    const auto found = by_got_.find(value);
    if (found != by_got_.end()) asked.insert(pairs_[found->second].expected);
  }
  ReferenceRun reference(reference_, inputs_, options_.device, asked, options_.window);
  std::vector<Value> contents;
  for (std::size_t i = 0; i < segment.frontier.size(); ++i) {
    const ir::Value* value = segment.frontier[i];
    const auto found = by_got_.find(value);
    if (found == by_got_.end()) {
      contents.push_back(inputs_[value->output_index()]);
    } else {
      const Value content = content_of(*pairs_[found->second].expected, reference);
      contents.push_back(in_form_of(content, states_[found->second].form).value_or(content));
    }
    divergence.inputs.push_back({divergence.reproduction.graph->input(i).name(), contents.back()});
  }
  fix_inputs(divergence.reproduction, contents);
}

// The wrong value by the nodes alone, beside the right one.
void Search::fill_figures(Divergence& divergence, const ir::Value* expected, const RunModel& runtime) {
  const std::string name = divergence.finding.name;
  const Values asked{expected};
  ReferenceRun reference(reference_, inputs_, options_.device, asked, options_.window);
  divergence.expected = content_of(*expected, reference);
  std::vector<Value> contents;
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

}  // namespace exportguard::validation
