#include "validation/search.h"

#include <fmt/format.h>

#include <algorithm>

#include "exportguard/evaluator/evaluator.h"
#include "validation/bodies.h"
#include "validation/choices.h"

namespace exportguard::validation {

using evaluator::Value;

std::string name_of_output(const ir::Graph& graph, std::size_t position) {
  for (std::size_t i = 0; i < graph.output_count(); ++i) {
    const ir::Value* value = graph.find_output(i);
    if (value == nullptr || position-- > 0) continue;
    return graph.output_name(i).empty() ? value->name() : graph.output_name(i);
  }
  return {};
}

Search::Search(const Subject& subject)
    : reference_(subject.reference),
      model_(subject.model),
      inputs_(subject.inputs),
      options_(subject.options),
      pairs_(align(*subject.reference.graph, *subject.model.graph)),
      states_(pairs_.size()),
      right_(pairs_.size(), subject.options.window) {
  for (std::size_t i = 0; i < pairs_.size(); ++i) by_got_.emplace(pairs_[i].got, i);
  for (const ir::Value* output : outputs_of(*reference_.graph)) is_output_.insert(output);
}

DivergenceReport Search::run() {
  report_.nodes = model_.graph->node_count();
  report_.aligned = pairs_.size();
  if (options_.run) {
    run_in_runtime();
  } else {
    run_in_evaluator();
  }
  if (differs_somewhere()) conclude();
  const std::size_t expected = outputs_of(*reference_.graph).size();
  const std::size_t got = outputs_of(*model_.graph).size();
  if (report_.error.empty() && expected != got) {
    report_.error = fmt::format("the model makes {} outputs instead of {}", got, expected);
  }
  return std::move(report_);
}

// ------------------------------------------------------------------------------------------------ runs

// First on right inputs, which tells most; then as it is, for its outputs, unless that would be the same run.
void Search::run_in_evaluator() {
  const std::optional<Contents> outputs = run_with_right_inputs();
  try {
    judge_outputs(outputs && is_as_it_is_ ? *outputs : run_as_it_is());
  } catch (const evaluator::EvaluationError& error) {
    report_.error = error.what();
  }
}

Search::Contents Search::run_as_it_is() const {
  evaluator::Substitute chance;
  if (!chance_.empty()) {
    chance = [this](const ir::Value& value, const Value&) -> std::optional<Value> {
      const auto pair = by_got_.find(&value);
      const auto found = pair == by_got_.end() ? chance_.end() : chance_.find(pair->second);
      return found == chance_.end() ? std::nullopt : std::optional(found->second);
    };
  }
  return evaluator::run(model_, inputs_, {.device = options_.device, .observer = {}, .substitute = std::move(chance)});
}

std::optional<Search::Contents> Search::run_with_right_inputs() {
  const Values values = wanted();
  ReferenceRun reference(reference_, inputs_, options_.device, values);

  bool is_references_fault = false;
  const auto substitute = [&](const ir::Value& value, const Value& got) -> std::optional<Value> {
    const auto found = by_got_.find(&value);
    if (found == by_got_.end()) return std::nullopt;
    is_references_fault = true;
    const Value expected = remembered(*pairs_[found->second].expected, reference);
    is_references_fault = false;
    return given_instead(found->second, expected, got);
  };

  const evaluator::Program program(model_, {.device = options_.device, .observer = {}, .substitute = substitute});
  std::optional<Contents> outputs;
  evaluator::Run run(program, inputs_);
  std::size_t steps = 0;
  try {
    while (run.advance()) ++steps;
    outputs = run.outputs();
  } catch (const evaluator::EvaluationError& error) {
    if (is_references_fault) throw;
    stopped_because_ = error.what();
    stopped_at_ = node_of_step(steps);
    stopped_inside_ = stopped_inside(error);
  }

  for (const ir::Value* output : outputs_of(*reference_.graph)) remembered(*output, reference);
  return outputs;
}

const ir::Node* Search::node_of_step(std::size_t step) const {
  for (const ir::Node& node : *model_.graph) {
    if (!node.is("", "Constant") && step-- == 0) return &node;
  }
  return nullptr;
}

// The model keeps its own value where that is the right one, so that one run serves for two.
std::optional<Value> Search::given_instead(std::size_t pair, const Value& expected, const Value& got) {
  const bool is_chance = pairs_[pair].is_chance;
  if (!is_chance && are_same(expected, got)) {
    states_[pair].of_right = Finding();
    right_.put(pair, got);
    return std::nullopt;
  }
  states_[pair].has_other_form = !is_chance && !has_form_of(expected, got);
  auto formed = in_form_of(expected, got);
  Value right = formed ? *std::move(formed) : expected;
  if (is_chance) chance_.insert_or_assign(pair, right);
  if (!is_chance) states_[pair].of_right = judge(expected, got, Likeness::kMeaning, options_.tolerance);
  if (!is_chance && !states_[pair].of_right->agrees() && is_free(pair, expected, got)) {
    states_[pair].of_right = Finding();
    chance_.insert_or_assign(pair, right);
    right_.put(pair, right);
    return right;
  }
  if (!is_chance && !states_[pair].of_right->agrees()) right_.keep();
  right_.put(pair, right);

  const bool is_equal = !is_chance && expected.find_tensor() != nullptr && has_no_difference(*states_[pair].of_right);
  if (is_equal || !is_given(pair)) return std::nullopt;
  is_as_it_is_ = is_as_it_is_ && is_chance;
  return right;
}

// The operand of what chooses is held in most cases; else the reference runs up to it once more.
bool Search::is_free(std::size_t pair, const Value& expected, const Value& got) const {
  const ir::Value& value = *pairs_[pair].expected;
  const ir::Value* operand = leaves_a_choice(value) ? value.producer()->find_input(0) : nullptr;
  if (operand == nullptr) return false;
  const auto beside = std::ranges::find(pairs_, operand, &AlignedPair::expected);
  const Value* held = beside == pairs_.end() ? nullptr : right_.find(static_cast<std::size_t>(beside - pairs_.begin()));
  if (held != nullptr) return is_another_choice(value, *held, expected, got);
  const Values asked{operand};
  ReferenceRun again(reference_, inputs_, options_.device, asked);
  return is_another_choice(value, content_of(*operand, again), expected, got);
}

void Search::judge_outputs(const Contents& got) {
  const std::vector<const ir::Value*> expected = outputs_of(*reference_.graph);
  for (std::size_t i = 0; i < std::min(expected.size(), got.size()); ++i) {
    report_.outputs.push_back(judge(expected_outputs_.at(expected[i]), got[i], Likeness::kExact, options_.tolerance));
    report_.outputs.back().name = name_of_output(*model_.graph, i);
  }
}

// Of another runtime only outputs are to be had: its own, and where these differ but the evaluator makes the right
// values of each node, values in between by windows, for which it is made ready anew.
void Search::run_in_runtime() {
  {
    const std::vector<const ir::Value*> outputs = outputs_of(*reference_.graph);
    const Values values(outputs.begin(), outputs.end());
    ReferenceRun reference(reference_, inputs_, options_.device, values);
    for (const ir::Value* output : outputs) remembered(*output, reference);
  }
  try {
    judge_outputs(options_.run(model_, inputs_));
  } catch (const Error& error) {
    report_.error = error.what();
  }

  if (report_.outputs_agree()) {
    try {  // they may hide a wrong value, which what reads it hardly heeds
      run_with_right_inputs();
    } catch (const evaluator::EvaluationError&) {  // an operator that the runtime alone has: outputs are what is known
    }
    return;
  }
  run_with_right_inputs();
  if (!find_first_wrong()) observe_runtime();
}

void Search::observe_runtime() {
  const Values values = wanted();
  ReferenceRun reference(reference_, inputs_, options_.device, values);
  std::vector<std::size_t> window;
  Contents expected;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    window.push_back(i);
    expected.push_back(content_of(*pairs_[i].expected, reference));
    bytes += bytes_of(expected.back());
    if (bytes <= options_.window && i + 1 < pairs_.size()) continue;
    observe_window(window, expected);
    window.clear();
    expected.clear();
    bytes = 0;
  }
}

void Search::observe_window(const std::vector<std::size_t>& window, const Contents& expected) {
  std::vector<const ir::Value*> asked;
  for (const std::size_t pair : window) asked.push_back(pairs_[pair].got);
  try {
    const Contents got = run_part(cut_out(model_, asked), {inputs_.begin(), inputs_.end()}, options_.run);
    for (std::size_t i = 0; i < window.size(); ++i) {
      if (pairs_[window[i]].is_chance) continue;
      states_[window[i]].in_runtime = judge(expected[i], got.at(i), Likeness::kMeaning, options_.tolerance);
    }
  } catch (const Error& error) {  // the search goes on with what the evaluator makes of it
    if (report_.error.empty()) report_.error = error.what();
  }
}

Search::Contents Search::run_part(const ir::Model& part, const Contents& inputs, const RunModel& runtime) const {
  if (runtime) return runtime(part, inputs);
  return evaluator::run(part, inputs, {.device = options_.device, .observer = {}, .substitute = {}});
}

// ------------------------------------------------------------------------------------------------ the reference

std::optional<Value> Search::known_content(const ir::Value& expected) const {
  if (expected.initializer() != nullptr) return Value(*expected.initializer());
  if (expected.producer() == nullptr) return inputs_[expected.output_index()];
  const auto found = expected_outputs_.find(&expected);
  return found == expected_outputs_.end() ? std::nullopt : std::optional(found->second);
}

Value Search::content_of(const ir::Value& expected, ReferenceRun& run) const {
  if (auto known = known_content(expected)) return *std::move(known);
  if (auto made = run.take(expected)) return *std::move(made);
  throw evaluator::EvaluationError(fmt::format("the reference ended without its value '{}'", expected.name()));
}

// Outputs are kept: they are asked for more than once.
Value Search::remembered(const ir::Value& expected, ReferenceRun& run) {
  Value content = content_of(expected, run);
  if (is_output_.contains(&expected)) expected_outputs_.emplace(&expected, content);
  return content;
}

Values Search::wanted() const {
  Values values;
  for (const AlignedPair& pair : pairs_) values.insert(pair.expected);
  values.insert(is_output_.begin(), is_output_.end());
  for (const auto& [value, content] : expected_outputs_) values.erase(value);
  return values;
}

}  // namespace exportguard::validation
