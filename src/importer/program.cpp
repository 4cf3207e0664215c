#include "importer/program.h"

#include <fmt/format.h>

#include <utility>

#include "exportguard/common/errors.h"

namespace exportguard::importer {

// ------------------------------------------------------------------------------------------------ weights

std::string Weights::free_name(const std::string& name) {
  std::string free = name;
  for (int k = 1; !taken_.insert(free).second; ++k) free = fmt::format("{}_{}", name, k);
  return free;
}

ir::Value& Weights::shared(const std::string& name, const ir::Tensor& tensor) {
  const auto [row, is_new] = by_identity_.try_emplace(tensor.identity());
  if (is_new) row->second = &main_->add_initializer(free_name(name), tensor);
  return *row->second;
}

ir::Value& Weights::add(const std::string& name, ir::Tensor tensor) {
  return main_->add_initializer(free_name(name), std::move(tensor));
}

// ------------------------------------------------------------------------------------------------ programs

Program::Program(Signature signature, ProgramNames names) : signature_(std::move(signature)), names_(std::move(names)) {
  for (const InputSpec& spec : signature_.inputs) by_placeholder_.emplace(spec.placeholder, &spec);
}

void Program::reserve_names(Weights& weights) const {
  for (const auto* names : {&names_.inputs, &names_.outputs}) {
    if (!*names) continue;
    for (const std::string& name : **names) weights.reserve(name);
  }
  if (names_.inputs) return;
  for (const InputSpec& spec : signature_.inputs)
    if (spec.is_user_input()) weights.reserve(spec.placeholder);
}

const InputSpec& Program::input(const std::string& placeholder) const {
  const auto spec = by_placeholder_.find(placeholder);
  if (spec == by_placeholder_.end())
    throw ImportError(fmt::format("placeholder {} is not in the program's signature", placeholder));
  return *spec->second;
}

std::string Program::next_input_name(const std::string& placeholder) {
  const std::size_t index = user_inputs_++;
  if (!names_.inputs) return placeholder;
  if (index >= names_.inputs->size())
    throw InvalidArgument(
        fmt::format("input_names must have a name for each of the program's inputs, got {}", names_.inputs->size()));
  return (*names_.inputs)[index];
}

std::string Program::next_output_name() {
  const std::size_t index = user_outputs_++;
  if (!names_.outputs) return {};
  if (index >= names_.outputs->size())
    throw InvalidArgument(
        fmt::format("output_names must have a name for each of the program's outputs, got {}", names_.outputs->size()));
  return (*names_.outputs)[index];
}

Store Program::store_of(const InputSpec& spec) {
  if (spec.kind == "TOKEN")
    throw ImportError(fmt::format("input {} is a token of an operator with side effects, which ONNX does not have",
                                  spec.placeholder));
  if (spec.kind == "CUSTOM_OBJ")
    throw ImportError(fmt::format("'{}' is a custom object; only tensors can be converted", spec.target));
  return spec.kind == "CONSTANT_TENSOR" || !spec.is_persistent ? Store::kConstants : Store::kState;
}

void Program::add_outputs(ir::Graph& graph, std::size_t results, const ResultOf& result) {
  const std::vector<OutputSpec>& specs = signature_.outputs;
  if (specs.size() != results)
    throw ImportError(fmt::format("the program returns {} values, its signature has {}", results, specs.size()));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].kind != "USER_OUTPUT" && specs[i].kind != "LOSS_OUTPUT") continue;
    const std::string unnamed = fmt::format("output_{}", user_outputs_);
    const std::string name = next_output_name();
    graph.add_output(result(i, name.empty() ? unnamed : name + "_value"), name);
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].kind.ends_with("_MUTATION")) graph.add_output(result(i, specs[i].target), mutated_name(specs[i]));
  }
}

std::string Program::mutated_name(const OutputSpec& spec) const {
  std::size_t index = 0;
  for (const InputSpec& input : signature_.inputs) {
    if (!input.is_user_input()) continue;
    if (input.placeholder == spec.target && names_.inputs) return names_.inputs->at(index) + "_mutated";
    ++index;
  }
  return spec.target + "_mutated";
}

}  // namespace exportguard::importer
