#include "exportguard/importer/functionalize.h"

#include <fmt/format.h>

#include <set>

#include "exportguard/common/errors.h"
#include "importer/aliases.h"
#include "importer/auto_functionalized.h"
#include "importer/hidden_writes.h"
#include "importer/inline_bodies.h"
#include "importer/writes.h"
#include "operators/facts.h"
#include "operators/schemas.h"

namespace exportguard::importer {
namespace {

using ir::Node;
using ir::Value;

/// What the importer saw of the memory of the results; nothing if it could not.
std::optional<std::int64_t> find_shares(const Node& node) {
  const ir::Attribute* mark = node.find_attribute("shares");
  return mark == nullptr ? std::nullopt : std::optional(std::get<std::int64_t>(*mark));
}

/// Whether torch made a view where the importer did not see it: it follows from dtype and contiguity, as torch decides
/// it.
bool is_view(const Node& node, const Aliases::Tensor& viewed) {
  const std::string_view base = operators::base_name(node.op());
  if (base == "to" || base == "type_as") return node.input(0).dtype() == node.output().dtype();
  if (base.ends_with("dropout")) {
    const bool* trains = node.arguments().size() > 2 ? node.arguments()[2].get_if<bool>() : nullptr;
    return trains != nullptr && !*trains;
  }
  return base.starts_with("atleast_") || viewed.is_contiguous;
}

/// One graph, from its first node to its last.
class Pass {
 public:
  Pass(ir::Graph& graph, operators::OperatorTable& operators, FunctionalizeReport& report)
      : graph_(graph), operators_(operators), report_(report) {}

  void run() {
    for (Node& node : graph_) visit(node);
    update_outputs();
    for (Node* node : rewritten_) graph_.erase(*node);
  }

  /// Inputs and initializers that were written, with what they hold at the end.
  std::vector<std::pair<Value*, Value*>> mutated() {
    std::vector<std::pair<Value*, Value*>> found;
    for (const auto& value : graph_.inputs()) add_if_mutated(*value, found);
    for (const auto& value : graph_.initializers()) add_if_mutated(*value, found);
    return found;
  }

 private:
  void visit(Node& node);
  void read_current(Node& node, const operators::OperatorFacts& facts);
  void note_views(Node& node, const operators::OperatorFacts& facts);
  void visit_bodies(Node& node);
  void give_out(Node& node, const std::vector<Value*>& written);
  void write(Node& node, const operators::OperatorFacts& facts);
  void reshape_self(Node& node, const operators::OperatorFacts& facts);
  void update_outputs();
  void add_if_mutated(Value& value, std::vector<std::pair<Value*, Value*>>& found);

  ir::Graph& graph_;
  operators::OperatorTable& operators_;
  FunctionalizeReport& report_;
  Aliases aliases_;
  std::vector<Node*> rewritten_;  // erased at the end: until then their outputs stand for tensors
};

/// The argument that the results are surely views of; null if they are none.
const Value* find_viewed(const Node& node, const operators::OperatorFacts& facts) {
  if (facts.effect == operators::Effect::kView) return find_operand(node, facts.viewed);
  const std::optional<std::int64_t> shares = find_shares(node);
  return shares.value_or(kOwns) >= 0 ? find_operand(node, static_cast<std::size_t>(*shares)) : nullptr;
}

void Pass::read_current(Node& node, const operators::OperatorFacts& facts) {
  const TorchCall call(node);
  const Value* viewed = find_viewed(node, facts);
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    Value* value = node.find_input(i);
    Aliases::Tensor* tensor = value ? aliases_.find(*value) : nullptr;
    if (tensor == nullptr) continue;
    Value& current = value == viewed ? aliases_.viewed_now(*tensor, call) : aliases_.current(*tensor, call);
    if (&current != value) node.set_input(i, &current);
  }
}

void Pass::visit(Node& node) {
  if (!node.is_torch()) return;
  const operators::OperatorFacts& facts = operators_.of(node);
  read_current(node, facts);
  if (facts.effect == operators::Effect::kWrite) return write(node, facts);
  if (facts.effect == operators::Effect::kReshapeSelf) return reshape_self(node, facts);
  if (node.domain() == "higher_order") return visit_bodies(node);
  note_views(node, facts);
  node.remove_attribute("shares");
}

void Pass::note_views(Node& node, const operators::OperatorFacts& facts) {
  const std::optional<std::int64_t> shares = find_shares(node);
  const bool is_marked = shares.value_or(kOwns) >= 0;
  const bool is_known = facts.effect == operators::Effect::kView;
  if (facts.effect == operators::Effect::kNone && !is_marked) return;
  const std::size_t position = is_known || !is_marked ? facts.viewed : static_cast<std::size_t>(*shares);
  Value* viewed = find_operand(node, position);
  if (viewed == nullptr) {
    if (is_marked) aliases_.add_views_of_list(node, position);
    return;
  }
  Aliases::Tensor& tensor = aliases_.of(*viewed);
  const bool is_shared = is_known || (shares ? is_marked : is_view(node, tensor));
  if (is_shared) return aliases_.add_views(node, position, tensor);
  if (shares == kDependsOnSizes) aliases_.doubt(tensor, aliases_.of(node.output()));
}

// ------------------------------------------------------------------------------------------------ writes

void take_name(const Value& from, Value& to) {
  if (to.name().empty()) to.set_name(from.name());
}

void Pass::write(Node& node, const operators::OperatorFacts& facts) {
  const TorchCall call(node);
  ++report_.rewritten;
  rewritten_.push_back(&node);

  if (node.is("aten", "set_.source_Tensor")) {
    aliases_.bind(*find_operand(node, 0), aliases_.of(*find_operand(node, 1)));
    return aliases_.bind(node.output(), aliases_.of(*find_operand(node, 1)));
  }

  const WriteResults results = functional_form(node, facts);
  std::size_t next = 0;
  for (const std::size_t position : facts.written) {
    for (Value* value : operands(node, position))
      aliases_.write(aliases_.of(*value), *results.written.at(next++), call);
  }

  for (std::size_t i = 0; i < facts.returns.size(); ++i) {
    if (facts.returns[i]) {
      take_name(node.output(i), *results.written.front());
      aliases_.bind(node.output(i), aliases_.of(*find_operand(node, *facts.returns[i])));
    } else {
      node.output(i).replace_all_uses_with(*results.fresh.at(i));
    }
  }
}

/// `unsqueeze_` and the like: the tensor becomes a view of what it was.
void Pass::reshape_self(Node& node, const operators::OperatorFacts& facts) {
  Value& self = node.input(0);
  Aliases::Tensor& tensor = aliases_.of(self);
  ++report_.rewritten;
  rewritten_.push_back(&node);
  const std::string_view base = operators::base_name(node.op());
  if (base == "detach_" || base == "requires_grad_") return aliases_.bind(node.output(), tensor);
  std::vector<CallArgument> arguments;
  for (std::size_t i = 0; i < node.arguments().size(); ++i) arguments.push_back(CallArgument::of(node, i));
  Node& view = TorchCall(node).node(node.domain(), facts.functional.value().op, arguments, {node.output().type()});
  aliases_.reshape_self(view, tensor, self);
  aliases_.bind(node.output(), aliases_.of(view.output()));
}

// ------------------------------------------------------------------------------------------------ nested graphs

/// Bodies that write into an operand give its new elements as one more output of the operator.
void Pass::visit_bodies(Node& node) {
  std::set<std::size_t> written;
  std::vector<std::unique_ptr<Pass>> passes;
  for (ir::Graph* body : node.subgraphs()) {
    Pass& pass = *passes.emplace_back(std::make_unique<Pass>(*body, operators_, report_));
    pass.run();
    for (const auto& [value, current] : pass.mutated()) {
      if (value->is_input()) written.insert(value->output_index());
    }
  }

  if (written.empty()) return;
  if (node.op() != "cond") {
    throw ImportError(
        fmt::format("cannot make {} functional: its body writes into an operand; return the new value "
                    "from the body instead",
                    place_of(node)));
  }

  for (const auto& pass : passes) {
    for (const std::size_t i : written) {
      Value& value = pass->graph_.input(i);
      Aliases::Tensor* tensor = pass->aliases_.find(value);
      pass->graph_.add_output(tensor ? tensor->owner->current : &value);
    }
  }

  const std::size_t first = node.input_count() - node.subgraphs().front()->input_count();
  for (const std::size_t i : written) {
    Value& operand = node.input(first + i);
    Value& result = node.append_output(operand.type());
    aliases_.write(aliases_.of(operand), result, TorchCall(node));
  }
}

// ------------------------------------------------------------------------------------------------ outputs

/// A view that is returned may have to be taken again, behind the last node.
void Pass::update_outputs() {
  const TorchCall call(graph_);
  for (std::size_t i = 0; i < graph_.output_count(); ++i) {
    Value* value = graph_.find_output(i);
    Aliases::Tensor* tensor = value ? aliases_.find(*value) : nullptr;
    if (tensor != nullptr) graph_.set_output(i, &aliases_.current(*tensor, call));
  }
}

void Pass::add_if_mutated(Value& value, std::vector<std::pair<Value*, Value*>>& found) {
  const Aliases::Tensor* tensor = aliases_.find(value);
  if (tensor != nullptr && tensor->owner->writes > 0) found.emplace_back(&value, tensor->owner->current);
}

/// One more output for each, unless the program returns it already.
std::size_t add_mutated_outputs(ir::Graph& graph, Pass& pass) {
  std::set<const Value*> returned;
  for (const Value* value : graph.outputs()) returned.insert(value);
  std::size_t added = 0;
  for (const auto& [value, current] : pass.mutated()) {
    if (!returned.insert(current).second) continue;
    graph.add_output(current, value->name() + "_mutated");
    ++added;
  }
  return added;
}

}  // namespace

FunctionalizeReport functionalize(ir::Graph& graph) {
  FunctionalizeReport report;
  operators::OperatorTable operators;
  unwrap_auto_functionalized(graph);
  reveal_writes(graph);
  inline_bodies(graph, operators);
  Pass pass(graph, operators, report);
  pass.run();
  report.extra_outputs = add_mutated_outputs(graph, pass);
  if (report.rewritten > 0) graph.erase_dead_nodes();
  graph.sweep();
  return report;
}

}  // namespace exportguard::importer
