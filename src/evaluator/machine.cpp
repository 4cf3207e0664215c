#include "evaluator/machine.h"

#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>
#include <fmt/format.h>

#include <new>

#include "exportguard/evaluator/interruption.h"

namespace exportguard::evaluator {
namespace {

// torch appends a stack trace and its own file names.
std::string first_line(const char* what) {
  const std::string_view text = what;
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace

Machine::Machine(const Routine& routine, const Setting& setting)
    : routine_(routine), setting_(setting), values_(static_cast<std::size_t>(routine.slot_count)) {
  for (const auto& [slot, datum] : routine.constants) values_[static_cast<std::size_t>(slot)] = datum;
}

Data Machine::run(const Code& code, Data inputs, std::string_view what) {
  take(code, std::move(inputs), what);
  for (const Code::Step& step : code.steps) execute(step);
  return results_of(code);
}

bool Machine::advance() {
  if (next_ == routine_.code.steps.size()) return false;
  execute(routine_.code.steps[next_++]);
  return true;
}

void Machine::take(const Code& code, Data inputs, std::string_view what) {
  if (inputs.size() != code.inputs.size()) {
    throw EvaluationError(fmt::format("{} takes {} inputs, got {}", what, code.inputs.size(), inputs.size()));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    values_[static_cast<std::size_t>(code.inputs[i])] = std::move(inputs[i]);
  }
}

void Machine::execute(const Code::Step& step) {
  Interruptible::ask();
  Data results = run_step(step);
  for (std::size_t i = 0; i < results.size() && i < step.outputs.size(); ++i) {
    values_[static_cast<std::size_t>(step.outputs[i])] = std::move(results[i]);
  }
  if (setting_.observer) observe(step);
  if (setting_.substitute) substitute(step);
  for (const int slot : step.dead) values_[static_cast<std::size_t>(slot)] = {};
}

Data Machine::results_of(const Code& code) {
  Data outputs;
  for (const int slot : code.outputs) outputs.push_back(slot < 0 ? Datum() : values_[static_cast<std::size_t>(slot)]);
  for (const int slot : code.own) values_[static_cast<std::size_t>(slot)] = {};
  return outputs;
}

Data Machine::run_step(const Code::Step& step) {
  if (step.function != nullptr) {
    Data inputs;
    for (const int slot : step.inputs) inputs.push_back(slot < 0 ? Datum() : values_[static_cast<std::size_t>(slot)]);
    inputs.resize(step.function->code.inputs.size());  // what a call leaves out at the end
    return Machine(*step.function, setting_).run(std::move(inputs));
  }
  c10::SmallVector<const Datum*, 6> inputs;
  for (const int slot : step.inputs) inputs.push_back(slot < 0 ? nullptr : &values_[static_cast<std::size_t>(slot)]);
  const Call::Surroundings around{
      step.opset, setting_.strings, setting_.device,
      [this, &step](std::string_view name, Data given) { return run_body(step, name, std::move(given)); }};
  Call call(*step.node, {inputs.data(), inputs.size()}, around);
  return run_operator(step, call);
}

// What torch throws becomes an error that names the node.
Data Machine::run_operator(const Code::Step& step, Call& call) {
  try {
    step.run(call);
  } catch (const EvaluationError&) {
    throw;
  } catch (const Interrupted&) {
    throw;
  } catch (const std::bad_alloc&) {
    call.fail("there is not enough memory");
  } catch (const c10::Error& error) {
    call.fail(first_line(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    call.fail(first_line(error.what()));
  }
  Data results = call.take_results();
  for (std::size_t i = results.size(); i < step.outputs.size(); ++i) {
    if (call.wants(i)) call.fail(fmt::format("it makes no output {}", i));
  }
  return results;
}

Data Machine::run_body(const Code::Step& step, std::string_view name, Data inputs) {
  Interruptible::ask();  // a body may be without nodes
  const auto body = step.bodies.find(name);
  if (body != step.bodies.end()) return run(body->second, std::move(inputs), fmt::format("the body '{}'", name));
  throw EvaluationError(fmt::format("{} has no graph '{}'", step.node->qualified_name(), name));
}

void Machine::observe(const Code::Step& step) {
  for (std::size_t i = 0; i < step.outputs.size(); ++i) {
    const Datum& datum = values_[static_cast<std::size_t>(step.outputs[i])];
    setting_.observer(step.node->output(i), to_value(datum, setting_.strings));
  }
}

void Machine::substitute(const Code::Step& step) {
  for (std::size_t i = 0; i < step.outputs.size(); ++i) {
    Datum& datum = values_[static_cast<std::size_t>(step.outputs[i])];
    const auto other = setting_.substitute(step.node->output(i), to_value(datum, setting_.strings));
    if (other) datum = to_datum(*other, setting_.strings, setting_.device);
  }
}

}  // namespace exportguard::evaluator
