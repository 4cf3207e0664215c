#include "exportguard/ir/verify.h"

#include <fmt/format.h>

#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "exportguard/common/errors.h"
#include "exportguard/ir/default_input.h"
#include "ir/describe.h"

namespace exportguard::ir {
namespace {

class Verifier {
 public:
  void verify(const Graph& graph) {
    add_surroundings(graph);
    check_graph(graph);
    for (const Value* value : seen_) check_uses(*value);
  }

 private:
  [[noreturn]] static void fail(const Node& node, const std::string& what) {
    throw GraphError(fmt::format("{}: {}", describe(node), what));
  }
  [[noreturn]] static void fail(const Graph& graph, const std::string& what) {
    throw GraphError(fmt::format("graph '{}': {}", graph.name(), what));
  }

  /// What a nested graph may read of the graphs around it.
  void add_surroundings(const Graph& graph) {
    const Node* parent = graph.parent();
    if (parent == nullptr) return;
    add_surroundings(parent->graph());
    for (const auto& input : parent->graph().inputs()) visible_.insert(input.get());
    for (const auto& value : parent->graph().initializers()) visible_.insert(value.get());
    for (const Node& node : parent->graph()) {
      if (&node == parent) return;
      for (std::size_t i = 0; i < node.output_count(); ++i) visible_.insert(&node.output(i));
    }
  }

  // ---------------------------------------------------------------- graphs

  void check_graph(const Graph& graph) {
    const std::size_t first = seen_.size();
    check_names(graph);
    for (const auto& input : graph.inputs()) define(*input, graph);
    for (const auto& value : graph.initializers()) define(*value, graph);
    check_links(graph);
    for (const Node& node : graph) check_node(node, graph);
    check_outputs(graph);
    for (std::size_t i = first; i < seen_.size(); ++i) visible_.erase(seen_[i]);
  }

  static void check_names(const Graph& graph) {
    std::unordered_set<std::string_view> names;
    const auto add = [&](const Value& value, std::string_view role) {
      const bool is_new = value.name().empty() || names.insert(value.name()).second;
      if (!is_new)
        fail(graph, fmt::format("the name '{}' of {} is taken by another input or initializer", value.name(), role));
    };
    for (const auto& input : graph.inputs()) add(*input, fmt::format("input {}", input->output_index()));
    for (const auto& value : graph.initializers()) add(*value, "an initializer");
    check_output_names(graph, names);
  }

  static void check_output_names(const Graph& graph, const std::unordered_set<std::string_view>& names) {
    std::unordered_set<std::string_view> output_names;
    for (std::size_t i = 0; i < graph.output_count(); ++i) {
      const std::string& name = graph.output_name(i);
      if (name.empty()) continue;
      if (!output_names.insert(name).second) fail(graph, fmt::format("two outputs have the name '{}'", name));
      const Value* value = graph.find_output(i);
      const bool is_given = value != nullptr && (value->producer() == nullptr || is_default_input(*value->producer()));
      const bool is_that_value = is_given && value->name() == name;
      if (names.contains(name) && !is_that_value) {
        fail(graph, fmt::format("the name '{}' of output {} is taken by an input or initializer", name, i));
      }
    }
  }

  static void check_links(const Graph& graph) {
    std::size_t count = 0;
    const Node* previous = nullptr;
    for (const Node& node : graph) {
      if (&node.graph() != &graph)
        fail(node, fmt::format("it stands in graph '{}' but belongs to another", graph.name()));
      if (node.is_erased()) fail(node, "it was erased but still stands in its graph");
      if (node.previous() != previous) fail(node, "it does not know the node before it");
      previous = &node;
      ++count;
    }
    const bool is_whole = count == graph.node_count() && previous == graph.last();
    if (!is_whole) fail(graph, fmt::format("it counts {} nodes, a walk finds {}", graph.node_count(), count));
  }

  void check_outputs(const Graph& graph) {
    for (std::size_t i = 0; i < graph.output_count(); ++i) {
      const Value* value = graph.find_output(i);
      if (value == nullptr) continue;
      ++reads_[value];
      if (!visible_.contains(value)) fail_read(*value, graph, fmt::format("output {} of graph '{}'", i, graph.name()));
    }
  }

  // ---------------------------------------------------------------- nodes

  void check_node(const Node& node, const Graph& graph) {
    for (std::size_t i = 0; i < node.input_count(); ++i) {
      const Value* value = node.find_input(i);
      if (value == nullptr) continue;
      ++reads_[value];
      if (!visible_.contains(value)) fail_read(*value, graph, fmt::format("{}, operand {},", describe(node), i));
    }

    check_arguments(node);
    for (const Graph* nested : node.subgraphs()) {
      if (nested->parent() != &node)
        fail(node, fmt::format("graph '{}' among its attributes has another parent", nested->name()));
      check_graph(*nested);
    }

    for (std::size_t i = 0; i < node.output_count(); ++i) {
      const Value& value = node.output(i);
      const bool is_its_own = value.producer() == &node && value.output_index() == i;
      if (!is_its_own) fail(node, fmt::format("output {} does not know its producer", i));
      define(value, graph);
    }
  }

  static void check_arguments(const Node& node) {
    const bool is_mixed = !node.is_torch() && !node.arguments().empty();
    if (is_mixed) fail(node, "an ONNX node has no arguments; operands and attributes say all");
    for (std::size_t i = 0; i < node.arguments().size(); ++i) check_argument(node, node.arguments()[i], i);
  }

  static void check_argument(const Node& node, const Argument& argument, std::size_t position) {
    if (const auto* list = argument.get_if<Argument::List>()) {
      for (const Argument& element : *list) check_argument(node, element, position);
    }
    const auto* operand = argument.get_if<Argument::Operand>();
    if (operand == nullptr || operand->index < node.input_count()) return;
    fail(node, fmt::format("argument {} names operand {}, but there are {} operands", position, operand->index,
                           node.input_count()));
  }

  // ---------------------------------------------------------------- values

  void define(const Value& value, const Graph& graph) {
    if (&value.graph() != &graph)
      fail(graph, fmt::format("{} is defined here but belongs to another graph", describe(value)));
    visible_.insert(&value);
    seen_.push_back(&value);
  }

  /// Says why `value` cannot be read there.
  [[noreturn]] static void fail_read(const Value& value, const Graph& graph, const std::string& reader) {
    const Node* producer = value.producer();
    std::string reason = "it is defined later";
    if (producer != nullptr && producer->is_erased()) {
      reason = "its node was erased";
    } else if (!is_within(graph, value.graph())) {
      reason = fmt::format("it belongs to graph '{}', which does not enclose graph '{}'", value.graph().name(),
                           graph.name());
    }
    throw GraphError(fmt::format("{} reads {}: {}", reader, describe(value), reason));
  }

  void check_uses(const Value& value) const {
    std::size_t count = 0;
    for (const Use* use : value.uses()) {
      const bool is_mutual = use->value() == &value && use->user().find_input(use->index()) == &value;
      if (!is_mutual)
        throw GraphError(fmt::format("{} lists {}, which does not read it", describe(value), describe(use->user())));
      ++count;
    }
    const auto found = reads_.find(&value);
    const std::size_t expected = found == reads_.end() ? 0 : found->second;
    if (count == expected) return;
    throw GraphError(fmt::format("{} has {} uses, but {} operands of this graph read it: another graph reads it, too",
                                 describe(value), count, expected));
  }

  std::unordered_set<const Value*> visible_;
  std::unordered_map<const Value*, std::size_t> reads_;
  std::vector<const Value*> seen_;
};

}  // namespace

void verify(const Graph& graph) { Verifier().verify(graph); }

void verify(const Model& model) {
  verify(*model.graph);
  for (const Function& function : model.functions) verify(*function.body);
}

}  // namespace exportguard::ir
