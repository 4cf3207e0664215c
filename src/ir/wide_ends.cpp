#include "exportguard/ir/wide_ends.h"

#include "exportguard/ir/builder.h"

namespace exportguard::ir {
namespace {

using Names = std::set<std::string, std::less<>>;

bool is_half(const Value& value) { return value.dtype() == DType::kFloat16 || value.dtype() == DType::kBFloat16; }

// A new input in the place of the old one, so that its readers are told apart from the Cast.
void widen_input(Model& model, Builder& in_front, std::size_t i) {
  Graph& graph = *model.graph;
  Value& narrow = graph.input(i);
  Type type = narrow.type();
  type.dtype = DType::kFloat32;

  Value& wide = graph.add_input(narrow.name(), type);
  narrow.replace_all_uses_with(*in_front.cast(&wide, narrow.dtype()));
  graph.erase_input(i);
  graph.move_input(graph.input_count() - 1, i);
}

std::string name_of_output(const Graph& graph, std::size_t i) {
  return graph.output_name(i).empty() ? graph.output(i).name() : graph.output_name(i);
}

void widen_output(Builder& behind, std::size_t i) {
  Graph& graph = behind.graph();
  const std::string name = name_of_output(graph, i);
  graph.set_output(i, behind.cast(&graph.output(i), DType::kFloat32));
  graph.set_output_name(i, name);
}

}  // namespace

void widen_ends(Model& model, const Names& names) {
  Graph& graph = *model.graph;
  Builder behind(model);
  for (std::size_t i = 0; i < graph.output_count(); ++i) {
    const Value* value = graph.find_output(i);
    if (value != nullptr && is_half(*value) && names.contains(name_of_output(graph, i))) widen_output(behind, i);
  }

  Builder in_front(model, {&graph, graph.first(), nullptr});
  for (std::size_t i = 0; i < graph.input_count(); ++i) {
    if (is_half(graph.input(i)) && names.contains(graph.input(i).name())) widen_input(model, in_front, i);
  }
}

}  // namespace exportguard::ir
