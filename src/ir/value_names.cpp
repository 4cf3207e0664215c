#include "ir/value_names.h"

#include <fmt/format.h>

#include "ir/literals.h"

namespace exportguard::ir {

const std::string& ValueNames::operator[](const Value& value) {
  if (!spellings_.contains(&value)) add(value);
  return spellings_.at(&value);
}

void ValueNames::add_graph(const Graph& graph) {
  for (const auto& input : graph.inputs()) add(*input);
  for (const auto& initializer : graph.initializers()) add(*initializer);
  for (const Value* output : graph.outputs()) {
    const bool claims_name = output != nullptr && &output->graph() == &graph && !output->name().empty();
    if (claims_name) add(*output);
  }
  for (const Node& node : graph) {
    for (std::size_t i = 0; i < node.output_count(); ++i) add(node.output(i));
    for (const Graph* nested : node.subgraphs()) add_graph(*nested);
  }
}

void ValueNames::add(const Value& value) {
  const auto [entry, is_new] = spellings_.try_emplace(&value);
  if (!is_new) return;
  entry->second = value.name().empty() ? fmt::format("%{}", unnamed_++) : '%' + spelled(unique(value.name()));
}

std::string ValueNames::unique(const std::string& name) {
  std::string candidate = name;
  while (!taken_.insert(candidate).second) candidate = fmt::format("{}_{}", name, ++suffixes_[name]);
  return candidate;
}

}  // namespace exportguard::ir
