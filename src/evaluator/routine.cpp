#include "evaluator/routine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <unordered_map>

#include "evaluator/constants.h"
#include "evaluator/torch_call.h"

namespace exportguard::evaluator {

namespace {

using Opsets = std::map<std::string, std::int64_t>;

bool is_constant(const ir::Node& node) { return node.is("", "Constant"); }

}  // namespace

/// Gives every value of one routine a slot and every node a step.
class RoutineBuilder {
 public:
  RoutineBuilder(Routines& all, const Opsets& opsets, const c10::Device& device, std::set<std::string>& missing)
      : all_(all), opsets_(opsets), device_(device), missing_(missing) {}

  void build(const ir::Graph& graph, Routine& routine) {
    routine_ = &routine;
    compile(graph, routine.code);
    routine.slot_count = static_cast<int>(routine.values.size());
  }

 private:
  // Where in its own graph a value is read last: the step, or beyond the last one for an output.
  using LastReads = std::unordered_map<const ir::Value*, std::size_t>;

  int define(const ir::Value& value) {
    const int slot = static_cast<int>(routine_->values.size());
    routine_->values.push_back(&value);
    slots_.emplace(&value, slot);
    return slot;
  }

  int slot_of(const ir::Value* value) const { return value == nullptr ? -1 : slots_.at(value); }

  void add_constant(const ir::Value& value, Datum datum) {
    const int slot = define(value);
    routine_->constants.emplace_back(slot, std::move(datum));
    constant_values_.insert(&value);
  }

  void compile(const ir::Graph& graph, Code& code) {
    for (const auto& input : graph.inputs()) code.own.emplace_back(code.inputs.emplace_back(define(*input)));
    for (const auto& value : graph.initializers()) {
      add_constant(*value, to_datum(*value->initializer(), all_.strings_, device_));
    }
    for (const ir::Node& node : graph) add_step(node, code);
    for (const ir::Value* value : graph.outputs()) add_output(graph, value, code);
    find_dead(graph, code);
  }

  void add_output(const ir::Graph& graph, const ir::Value* value, Code& code) {
    code.outputs.push_back(slot_of(value));
    const bool is_own = value != nullptr && &value->graph() == &graph && !constant_values_.contains(value);
    if (is_own) code.own.push_back(code.outputs.back());
  }

  void add_step(const ir::Node& node, Code& code) {
    if (is_constant(node)) return add_constant(node.output(), constant_of(node, all_.strings_, device_));
    Code::Step step;
    step.node = &node;
    const auto version = opsets_.find(node.domain());
    step.opset = version == opsets_.end() ? 1 : version->second;
    choose_implementation(node, step);
    for (std::size_t i = 0; i < node.input_count(); ++i) step.inputs.push_back(slot_of(node.find_input(i)));
    add_bodies(node, step);
    for (std::size_t i = 0; i < node.output_count(); ++i) step.outputs.push_back(define(node.output(i)));
    code.steps.push_back(std::move(step));
  }

  void choose_implementation(const ir::Node& node, Code::Step& step) {
    const auto function = all_.functions_.find({node.domain(), node.op()});
    if (function != all_.functions_.end()) {
      step.function = function->second.get();
      return;
    }
    step.run = node.is_torch() ? find_torch_operator(node) : OperatorTable::builtin().find(node.qualified_name());
    if (step.run == nullptr) missing_.insert(node.qualified_name());
  }

  void add_bodies(const ir::Node& node, Code::Step& step) {
    for (const ir::NamedAttribute& attribute : node.attributes()) {
      if (const auto* nested = std::get_if<std::unique_ptr<ir::Graph>>(&attribute.second)) {
        compile(**nested, step.bodies[attribute.first]);
      }
    }
  }

  // ---------------------------------------------------------------- what may be freed

  void find_dead(const ir::Graph& graph, Code& code) {
    std::unordered_map<int, std::size_t> last;
    for (std::size_t i = 0; i < code.steps.size(); ++i) {
      for (const int slot : code.steps[i].outputs) last[slot] = i;
    }
    if (graph.parent() == nullptr) {
      for (const int slot : code.inputs) last[slot] = 0;
    }
    for (std::size_t i = 0; i < code.steps.size(); ++i) note_reads(code.steps[i], i, last);
    for (const int slot : code.outputs) last.erase(slot);
    for (const auto& [slot, step] : last) {
      if (step < code.steps.size()) code.steps[step].dead.push_back(slot);
    }
  }

  static void note_reads(const Code::Step& step, std::size_t at, std::unordered_map<int, std::size_t>& last) {
    const auto note = [&](int slot) {
      const auto found = last.find(slot);
      if (found != last.end()) found->second = std::max(found->second, at);
    };
    for (const int slot : step.inputs) note(slot);
    for (const auto& [name, body] : step.bodies) {
      for (const Code::Step& inner : body.steps) note_reads(inner, at, last);
      for (const int slot : body.outputs) note(slot);
    }
  }

  Routines& all_;
  const Opsets& opsets_;
  const c10::Device& device_;
  std::set<std::string>& missing_;
  Routine* routine_ = nullptr;
  std::unordered_map<const ir::Value*, int> slots_;
  std::set<const ir::Value*> constant_values_;
};

Routines::Routines(const ir::Model& model, const c10::Device& device) : main_(std::make_unique<Routine>()) {
  std::set<std::string> missing;
  for (const ir::Function& function : model.functions) {
    functions_.emplace(std::pair(function.domain, function.name), std::make_unique<Routine>());
  }
  for (const ir::Function& function : model.functions) {
    const Opsets& opsets = function.opsets.empty() ? model.opsets : function.opsets;
    Routine& routine = *functions_.at({function.domain, function.name});
    RoutineBuilder(*this, opsets, device, missing).build(*function.body, routine);
  }
  RoutineBuilder(*this, model.opsets, device, missing).build(*model.graph, *main_);
  if (missing.empty()) return;
  throw EvaluationError(
      fmt::format("{} operators have no implementation in the evaluator: {}; run the model in "
                  "onnxruntime",
                  missing.size(), fmt::join(missing, ", ")));
}

}  // namespace exportguard::evaluator
