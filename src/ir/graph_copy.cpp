#include <fmt/format.h>

#include "exportguard/common/errors.h"
#include "exportguard/ir/graph.h"
#include "ir/copier.h"

namespace exportguard::ir {

std::unique_ptr<Graph> Graph::clone(const std::map<const Value*, Value*>& captured) const {
  Copier copier;
  for (const auto& [value, replacement] : captured) copier.map(*value, replacement);
  return copier.copy(*this);
}

// Under its own name, or a longer one if another tensor has that name.
Value& Graph::take_over(const Value& initializer) {
  const Tensor& tensor = *initializer.initializer();
  std::string name = initializer.name();
  for (int k = 1;; ++k) {
    const Value* other = find_initializer(name);
    if (other == nullptr || other->initializer()->identity() == tensor.identity()) break;
    name = fmt::format("{}_{}", initializer.name(), k);
  }
  return add_initializer(std::move(name), tensor);
}

std::vector<Value*> Graph::splice(const Graph& other, std::span<Value* const> arguments, Node* where) {
  if (arguments.size() != other.input_count()) {
    throw GraphError(
        fmt::format("graph '{}' has {} inputs, got {} arguments", other.name(), other.input_count(), arguments.size()));
  }
  Copier copier;
  for (std::size_t i = 0; i < arguments.size(); ++i) copier.map(other.input(i), arguments[i]);
  for (const auto& value : other.initializers()) copier.map(*value, &take_over(*value));
  copier.copy_nodes(other, *this, where);
  std::vector<Value*> results;
  for (Value* output : other.outputs()) results.push_back(copier.find(output));
  return results;
}

}  // namespace exportguard::ir
