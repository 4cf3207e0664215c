#include "validation/search.h"

#include <fmt/format.h>

#include <algorithm>

#include "exportguard/evaluator/evaluator.h"

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
      states_(pairs_.size()) {
  for (std::size_t i = 0; i < pairs_.size(); ++i) by_got_.emplace(pairs_[i].got, i);
  for (const ir::Value* output : outputs_of(*reference_.graph)) is_output_.insert(output);
}

DivergenceReport Search::run() {
  report_.nodes = model_.graph->node_count();
  report_.aligned = pairs_.size();
  if (options_.run) {
    run_in_runtime();
  } else {
    run_as_it_is();
  }
  if (differs_somewhere()) {
    run_with_right_inputs();
    conclude();
  }
  return std::move(report_);
}

// ------------------------------------------------------------------------------------------------ runs

std::optional<std::vector<Value>> Search::run_beside(const Replace& replace) {
  const Values values = wanted();
  ReferenceRun reference(reference_, inputs_, options_.device, values, options_.window);
  std::unordered_set<const ir::Node*> seen;
  bool is_references_fault = false;
  const auto substitute = [&](const ir::Value& value, const Value& got) -> std::optional<Value> {
    if (value.producer() != nullptr) seen.insert(value.producer());
    const auto found = by_got_.find(&value);
    if (found == by_got_.end()) return std::nullopt;
    is_references_fault = true;
    const Value expected = remembered(*pairs_[found->second].expected, reference);
    is_references_fault = false;
    return replace(found->second, expected, got);
  };
  const evaluator::Program program(model_, {.device = options_.device, .observer = {}, .substitute = substitute});
  try {
    std::vector<Value> outputs = program.run(inputs_);
    is_references_fault = true;
    for (const ir::Value* output : outputs_of(*reference_.graph)) remembered(*output, reference);
    return outputs;
  } catch (const evaluator::EvaluationError& error) {
    if (is_references_fault) throw;
    stopped_because_ = error.what();
  }
  stopped_at_ = nullptr;
  for (const ir::Node& node : *model_.graph) {
    const bool is_step = !node.is("", "Constant") && node.output_count() > 0;
    if (is_step && stopped_at_ == nullptr && !seen.contains(&node)) stopped_at_ = &node;
  }
  return std::nullopt;
}

void Search::run_as_it_is() {
  const auto outputs = run_beside([this](std::size_t pair, const Value& expected, const Value& got) {
    if (pairs_[pair].is_chance) return in_form_of(expected, got);
    states_[pair].as_it_is = judge(expected, got, Likeness::kMeaning, options_.tolerance);
    return std::optional<Value>();
  });
  if (outputs) {
    judge_outputs(*outputs);
  } else {
    report_.error = stopped_because_;
  }
}

void Search::judge_outputs(const std::vector<Value>& got) {
  const std::vector<const ir::Value*> expected = outputs_of(*reference_.graph);
  for (std::size_t i = 0; i < std::min(expected.size(), got.size()); ++i) {
    report_.outputs.push_back(judge(expected_outputs_.at(expected[i]), got[i], Likeness::kExact, options_.tolerance));
    report_.outputs.back().name = name_of_output(*model_.graph, i);
  }
}

// Of another runtime only outputs are to be had: first its own, then, where these differ, values in between by windows.
void Search::run_in_runtime() {
  {
    const std::vector<const ir::Value*> outputs = outputs_of(*reference_.graph);
    const Values values(outputs.begin(), outputs.end());
    ReferenceRun reference(reference_, inputs_, options_.device, values, options_.window);
    for (const ir::Value* output : outputs) remembered(*output, reference);
  }
  try {
    judge_outputs(options_.run(model_, inputs_));
  } catch (const Error& error) {
    report_.error = error.what();
  }
  if (!report_.outputs_agree()) observe_runtime();
}

void Search::observe_runtime() {
  const Values values = wanted();
  ReferenceRun reference(reference_, inputs_, options_.device, values, options_.window);
  std::vector<std::size_t> window;
  std::vector<Value> expected;
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

void Search::observe_window(const std::vector<std::size_t>& window, const std::vector<Value>& expected) {
  std::vector<const ir::Value*> asked;
  for (const std::size_t pair : window) asked.push_back(pairs_[pair].got);
  try {
    const std::vector<Value> got = run_part(cut_out(model_, asked), {inputs_.begin(), inputs_.end()}, options_.run);
    for (std::size_t i = 0; i < window.size(); ++i) {
      if (pairs_[window[i]].is_chance) continue;
      states_[window[i]].as_it_is = judge(expected[i], got.at(i), Likeness::kMeaning, options_.tolerance);
    }
  } catch (const Error& error) {  // the search goes on with what the evaluator makes of it
    if (report_.error.empty()) report_.error = error.what();
  }
}

std::vector<Value> Search::run_part(const ir::Model& part, const std::vector<Value>& inputs,
                                    const RunModel& runtime) const {
  if (runtime) return runtime(part, inputs);
  return evaluator::run(part, inputs, {.device = options_.device, .observer = {}, .substitute = {}});
}

void Search::run_with_right_inputs() {
  stopped_because_.clear();
  run_beside([this](std::size_t pair, const Value& expected, const Value& got) -> std::optional<Value> {
    State& state = states_[pair];
    state.form = form_of(got);
    if (!pairs_[pair].is_chance) state.of_right = judge(expected, got, Likeness::kMeaning, options_.tolerance);
    if (!is_given(pair)) return std::nullopt;
    auto formed = in_form_of(expected, got);
    if (!formed) state.form = form_of(expected);
    return formed ? std::move(formed) : std::optional(expected);
  });
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
