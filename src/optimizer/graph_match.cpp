#include "optimizer/graph_match.h"

#include <fmt/format.h>

#include <algorithm>

namespace exportguard::optimizer {
namespace {

// Orders of operands multiply: a pattern of many sums would try for ever.
constexpr std::size_t kMostSteps = 4096;

bool is_commutative(const ir::Node& node) {
  static constexpr std::string_view kOperators[] = {"Add", "Mul", "And",        "Or",        "Xor",       "Equal",
                                                    "Max", "Min", "BitwiseAnd", "BitwiseOr", "BitwiseXor"};
  return node.domain().empty() && node.input_count() == 2 &&
         std::ranges::find(kOperators, node.op()) != std::end(kOperators);
}

/// Without the operands that are left out at the end.
std::size_t input_count(const ir::Node& node) {
  std::size_t count = node.input_count();
  while (count > 0 && node.find_input(count - 1) == nullptr) --count;
  return count;
}

bool same_number(const ir::Tensor& wanted, const ir::Tensor& got) {
  const double number = wanted.to_doubles().front();
  const double rounded = ir::Tensor::scalar(number, got.dtype()).to_doubles().front();
  const double is = got.to_doubles().front();
  return rounded == is || (rounded != rounded && is != is);
}

bool is_number_type(DType dtype) { return dtype != DType::kString && !is_complex(dtype); }

/// Attributes of a node, nested graphs aside, that two nodes may share.
bool same_attribute(const ir::Attribute& a, const ir::Attribute& b) {
  if (a.index() != b.index() || std::holds_alternative<std::unique_ptr<ir::Graph>>(a)) return false;
  if (const auto* number = std::get_if<double>(&a)) {  // files hold them in single precision
    return static_cast<float>(*number) == static_cast<float>(std::get<double>(b));
  }
  return a == b;
}

/// The node of `graph` that a node is, or is nested in.
const ir::Node* at_level(const ir::Node& node, const ir::Graph& graph) {
  const ir::Node* level = &node;
  while (level && &level->graph() != &graph) level = level->graph().parent();
  return level;
}

}  // namespace

bool GraphMatch::no(std::string reason) {
  if (reason_.empty() || met_ > farthest_) {
    farthest_ = met_;
    reason_ = std::move(reason);
  }
  return false;
}

bool GraphMatch::find(const ir::Node& pattern_root, ir::Node& node) {
  root_ = &node;
  return solve_node(State{}, pattern_root, node);
}

bool GraphMatch::solve(State state) {
  if (++steps_ > kMostSteps) return no("there are too many ways to put it there");
  while (!state.pending.empty()) {
    const Pair pair = state.pending.back();
    state.pending.pop_back();
    if (const auto known = state.values.find(pair.pattern); known != state.values.end()) {
      if (known->second != pair.value) return no("two operands that must be one value are not");
      continue;
    }

    const ir::Node* producer = pair.pattern->producer();
    if (producer != nullptr && !producer->is("", "Constant")) {
      ir::Node* node = pair.value->producer();
      if (node == nullptr) return no(fmt::format("an operand is not the result of {}", producer->qualified_name()));
      if (node->output_count() <= pair.pattern->output_index() ||
          &node->output(pair.pattern->output_index()) != pair.value)
        return no(fmt::format("an operand is another output of {}", producer->qualified_name()));
      return solve_node(std::move(state), *producer, *node);
    }
    if (!solve_pair(state, pair)) return false;
  }

  if (!is_separate(state)) return false;
  found_ = std::move(state);
  return true;
}

bool GraphMatch::solve_pair(State& state, const Pair& pair) {
  state.values[pair.pattern] = pair.value;
  if (pair.pattern->is_input()) return meets_hole(state, pair.pattern->output_index(), *pair.value);
  const ir::Tensor* constant = facts_.constant(pair.pattern);
  return constant && meets_constant(*constant, *pair.value);
}

bool GraphMatch::solve_node(State state, const ir::Node& pattern, ir::Node& node) {
  met_ = state.nodes.size();
  if (const auto known = state.nodes.find(&pattern); known != state.nodes.end() && known->second != &node)
    return no("two operands that must come from one node do not");

  const bool is_operator = node.is(pattern.domain(), pattern.op()) && !node.is_torch();
  if (!is_operator) return no(fmt::format("an operand is not the result of {}", pattern.qualified_name()));
  if (&node.graph() != &root_->graph()) return no("a part of it is in a graph outside");
  if (node.output_count() != pattern.output_count() || input_count(node) != input_count(pattern))
    return no(fmt::format("{} has other operands or outputs", pattern.qualified_name()));
  if (!has_attributes(pattern, node)) return no(fmt::format("{} has other attributes", pattern.qualified_name()));

  state.nodes[&pattern] = &node;
  met_ = state.nodes.size();
  for (std::size_t i = 0; i < node.output_count(); ++i) state.values[&pattern.output(i)] = &node.output(i);

  const int orders = is_commutative(pattern) ? 2 : 1;
  for (int order = 0; order < orders; ++order) {
    State next = state;
    bool fits = true;
    for (std::size_t i = input_count(pattern); i-- > 0;) {
      const Value* wanted = pattern.find_input(i);
      Value* got = node.find_input(order == 0 ? i : 1 - i);
      if (!wanted || !got) {
        fits = fits && !wanted && !got;
        continue;
      }
      next.pending.push_back({wanted, got});
    }
    if (!fits) return no(fmt::format("{} lacks an operand", pattern.qualified_name()));
    if (solve(std::move(next))) return true;
  }
  return false;
}

// ------------------------------------------------------------------------------------------------ holes

bool GraphMatch::meets_hole(State& state, std::size_t index, Value& value) {
  if (pattern_.holes.empty()) return true;
  const Hole& hole = pattern_.holes[index];
  const std::string& name = pattern_.match->graph->input(index).name();
  if (hole.is_constant && !facts_.constant(&value)) return no(fmt::format("{} is not constant", name));
  if (hole.type.dtype != DType::kUndefined && hole.type.dtype != value.dtype())
    return no(fmt::format("{} is not {}", name, exportguard::name(hole.type.dtype)));
  if (hole.type.shape) {
    const auto& shape = shape_of(value);
    if (!shape || !meets_sizes(state, *hole.type.shape, *shape))
      return no(fmt::format("{} is not known to have that shape", name));
  }
  if (!hole.elements) return true;
  const auto& elements = facts_.sizes(&value);
  if (elements && meets_sizes(state, *hole.elements, *elements)) return true;
  return no(fmt::format("{} is not known to hold those sizes", name));
}

bool GraphMatch::meets_sizes(State& state, const std::vector<SymExpr>& wanted, const std::vector<SymExpr>& got) {
  if (wanted.size() != got.size()) return false;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto symbol = wanted[i].symbol_name();
    if (symbol && state.sizes.emplace(*symbol, got[i]).second) continue;
    if (wanted[i].substitute(state.sizes) != got[i]) return false;
  }
  return true;
}

bool GraphMatch::meets_constant(const ir::Tensor& wanted, const Value& value) {
  const ir::Tensor* got = facts_.constant(&value);
  if (got == nullptr) return no("an operand is not constant");
  const bool are_numbers = is_number_type(wanted.dtype()) && is_number_type(got->dtype());
  const bool is_scalar = wanted.shape().empty() && got->numel() == 1 && got->shape().size() <= 1;
  if (are_numbers && is_scalar) return same_number(wanted, *got) || no("a constant is another number");
  return wanted == *got || no("a constant has other elements");
}

bool GraphMatch::is_free(const ir::Node& pattern, const std::string& attribute) const {
  return std::ranges::any_of(pattern_.attributes, [&](const AttributeHole& hole) {
    return hole.attribute == attribute && hole.op == pattern.qualified_name();
  });
}

bool GraphMatch::has_attributes(const ir::Node& pattern, const ir::Node& node) {
  for (const auto& [name, value] : node.attributes()) {
    if (is_free(pattern, name)) continue;
    const ir::Attribute* wanted = pattern.find_attribute(name);
    if (wanted == nullptr || !same_attribute(*wanted, value)) return false;
  }
  return std::ranges::all_of(pattern.attributes(), [&](const ir::NamedAttribute& attribute) {
    return is_free(pattern, attribute.first) || node.find_attribute(attribute.first) != nullptr;
  });
}

// ------------------------------------------------------------------------------------------------ what lies around

bool GraphMatch::is_output(const Value& pattern) const {
  const auto outputs = pattern_.match->graph->outputs();
  return std::ranges::find(outputs, &pattern) != outputs.end();
}

/// Whether nothing outside reads what goes, or reads what is made anew before it is there.
bool GraphMatch::is_separate(const State& state) {
  std::vector<const ir::Node*> inside;
  for (const auto& [pattern, node] : state.nodes) inside.push_back(node);
  for (const auto& [pattern, node] : state.nodes) {
    for (std::size_t i = 0; i < node->output_count(); ++i) {
      for (const ir::Use* use : node->output(i).uses()) {
        if (std::ranges::find(inside, &use->user()) != inside.end()) continue;
        if (!is_output(pattern->output(i))) return no("a value between is read elsewhere");
        const ir::Node* reader = at_level(use->user(), root_->graph());
        const bool is_behind = reader && (reader->is("", "return") || root_->is_before(*reader));
        if (!is_behind) return no("an output is read before the last node");
      }
    }
  }
  return true;
}

Captures GraphMatch::captures() const {
  Captures captures{.root = root_, .values = {}, .sizes = found_.sizes, .attributes = {}};
  for (const auto& input : pattern_.match->graph->inputs()) captures.values.push_back(found_.values.at(input.get()));
  for (const AttributeHole& hole : pattern_.attributes) {
    for (const auto& [pattern, node] : found_.nodes) {
      if (pattern->qualified_name() == hole.op) captures.attributes[hole.name] = node->find_attribute(hole.attribute);
    }
  }
  return captures;
}

std::vector<Value*> GraphMatch::outputs() const {
  std::vector<Value*> outputs;
  for (const Value* output : pattern_.match->graph->outputs()) outputs.push_back(found_.values.at(output));
  return outputs;
}

}  // namespace exportguard::optimizer
