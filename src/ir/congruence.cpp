#include "exportguard/ir/congruence.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>

#include "exportguard/ir/places.h"
#include "exportguard/ir/types.h"

namespace exportguard::ir {
namespace {

/// Expressions by number: two values have one number if they are computed in one way. Exact, no hash is trusted.
class Expressions {
 public:
  std::size_t of(std::string key) { return numbers_.try_emplace(std::move(key), numbers_.size()).first->second; }

 private:
  std::unordered_map<std::string, std::size_t> numbers_;
};

/// Constants by number: those that show one memory are equal, and so are those of equal contents.
class Constants {
 public:
  std::size_t of(const Tensor& tensor) {
    if (tensor.dtype() == DType::kString) return of_contents(tensor);
    const auto [row, is_new] = by_identity_.try_emplace(tensor.identity());
    if (is_new) row->second = of_contents(tensor);
    return row->second;
  }

 private:
  std::size_t of_contents(const Tensor& tensor) {
    std::vector<std::size_t>& alike =
        by_look_[fmt::format("{} {}", name(tensor.dtype()), fmt::join(tensor.shape(), ","))];
    for (const std::size_t number : alike) {
      if (*tensors_[number] == tensor) return number;
    }
    tensors_.push_back(&tensor);
    alike.push_back(tensors_.size() - 1);
    return alike.back();
  }

  std::vector<const Tensor*> tensors_;
  std::unordered_map<std::string, std::size_t> by_identity_;
  std::unordered_map<std::string, std::vector<std::size_t>> by_look_;
};

/// What both graphs share while they are numbered.
struct Numbering {
  Expressions expressions;
  Constants constants;
};

/// The expressions of one graph and of those inside it.
class NumberedGraph {
 public:
  NumberedGraph(Numbering& shared, const Graph& graph) : shared_(shared) {
    for (const auto& input : graph.inputs()) numbers_[input.get()] = shared_.expressions.of("input " + input->name());
    number(graph);
  }

  std::size_t of(const Value* value) const { return value == nullptr ? kNothing : numbers_.at(value); }

  /// The operator with its attributes, without operands.
  const std::string& call_of(const Node& node) const { return calls_.at(&node); }

 private:
  static constexpr std::size_t kNothing = static_cast<std::size_t>(-1);

  void number(const Graph& graph) {
    for (const auto& initializer : graph.initializers()) {
      numbers_[initializer.get()] =
          shared_.expressions.of(fmt::format("constant {}", shared_.constants.of(*initializer->initializer())));
    }
    for (const Node& node : graph) number(node);
  }

  void number(const Node& node) {
    const std::string& call = calls_[&node] = described(node);
    std::string key = call + " of";
    for (std::size_t i = 0; i < node.input_count(); ++i) key += fmt::format(" {}", of(node.find_input(i)));
    for (std::size_t i = 0; i < node.output_count(); ++i) {
      numbers_[&node.output(i)] = shared_.expressions.of(fmt::format("{} #{}", key, i));
    }
  }

  std::string described(const Node& node) {
    std::vector<std::string> parts;
    for (const auto& [name, attribute] : node.attributes()) parts.push_back(name + "=" + text(attribute));
    std::ranges::sort(parts);
    return fmt::format("{}[{}]/{}", node.qualified_name(), fmt::join(parts, "; "), node.output_count());
  }

  std::string text(const Attribute& attribute) {
    return std::visit([this](const auto& value) { return text_of(value); }, attribute);
  }
  std::string text_of(std::int64_t value) { return fmt::format("{}", value); }
  std::string text_of(double value) { return fmt::format("{:a}", value); }  // exact
  std::string text_of(const std::string& value) { return fmt::format("'{}':{}", value, value.size()); }
  std::string text_of(const Tensor& value) { return fmt::format("tensor {}", shared_.constants.of(value)); }
  std::string text_of(const Type& value) { return value.str(); }
  template <typename T>
  std::string text_of(const std::vector<T>& values) {
    std::string text = "(";
    for (const T& value : values) text += text_of(value) + ",";
    return text + ")";
  }

  /// A body is what it returns, of its own inputs by depth and position and of the values around it.
  std::string text_of(const std::unique_ptr<Graph>& body) {
    ++depth_;
    for (std::size_t i = 0; i < body->input_count(); ++i) {
      const Value& input = body->input(i);
      numbers_[&input] = shared_.expressions.of(fmt::format("body input {} {} {}", depth_, i, input.type().str()));
    }
    number(*body);
    --depth_;
    std::string text = "{";
    for (std::size_t i = 0; i < body->output_count(); ++i) text += fmt::format("{} ", of(body->find_output(i)));
    return text + "}";
  }

  Numbering& shared_;
  std::unordered_map<const Value*, std::size_t> numbers_;
  std::unordered_map<const Node*, std::string> calls_;
  int depth_ = 0;
};

std::string described(const Value* value) {
  if (value == nullptr) return "nothing";
  const Node* producer = value->producer();
  if (producer == nullptr) return fmt::format("{} {}", value->is_input() ? "input" : "initializer", value->name());
  return placed(producer->qualified_name(), producer->source());
}

/// The deepest pair of values, along the first operands that differ, whose calls are others.
std::string explained(const NumberedGraph& a, const NumberedGraph& b, const Value* left, const Value* right) {
  while (left != nullptr && right != nullptr && left->producer() != nullptr && right->producer() != nullptr) {
    const Node& first = *left->producer();
    const Node& second = *right->producer();
    if (a.call_of(first) != b.call_of(second)) {
      return fmt::format("{} against {}: {} against {}", described(left), described(right), a.call_of(first),
                         b.call_of(second));
    }
    if (first.input_count() != second.input_count()) {
      return fmt::format("{} has {} operands against {}", described(left), first.input_count(), second.input_count());
    }

    std::size_t i = 0;
    while (i < first.input_count() && a.of(first.find_input(i)) == b.of(second.find_input(i))) ++i;
    if (i == first.input_count()) {
      return fmt::format("{}: result {} against {}", described(left), left->output_index(), right->output_index());
    }
    left = first.find_input(i);
    right = second.find_input(i);
  }
  return fmt::format("{} against {}", described(left), described(right));
}

std::string label(const Graph& graph, std::size_t output) {
  const Value* value = graph.find_output(output);
  const std::string& own = graph.output_name(output);
  if (value == nullptr) return "nothing";
  return fmt::format("{}: {}", own.empty() ? fmt::format("#{}", output) : own, value->type().str());
}

std::string signature_difference(const Graph& a, const Graph& b) {
  if (a.input_count() != b.input_count()) return fmt::format("{} inputs against {}", a.input_count(), b.input_count());
  for (std::size_t i = 0; i < a.input_count(); ++i) {
    const std::string left = fmt::format("{}: {}", a.input(i).name(), a.input(i).type().str());
    const std::string right = fmt::format("{}: {}", b.input(i).name(), b.input(i).type().str());
    if (left != right) return fmt::format("input {} is {} against {}", i, left, right);
  }
  if (a.output_count() != b.output_count()) {
    return fmt::format("{} outputs against {}", a.output_count(), b.output_count());
  }
  for (std::size_t i = 0; i < a.output_count(); ++i) {
    if (label(a, i) != label(b, i)) return fmt::format("output {} is {} against {}", i, label(a, i), label(b, i));
  }
  return {};
}

}  // namespace

std::string first_difference(const Graph& a, const Graph& b) {
  if (std::string difference = signature_difference(a, b); !difference.empty()) return difference;
  Numbering shared;
  const NumberedGraph left(shared, a);
  const NumberedGraph right(shared, b);
  for (std::size_t i = 0; i < a.output_count(); ++i) {
    const Value* first = a.find_output(i);
    const Value* second = b.find_output(i);
    if (left.of(first) == right.of(second)) continue;
    return fmt::format("output {} ({}): {}", i, label(a, i), explained(left, right, first, second));
  }
  return {};
}

}  // namespace exportguard::ir
