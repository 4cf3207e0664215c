#include "validation/alignment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <ranges>
#include <string_view>
#include <unordered_set>

#include "exportguard/ir/inference.h"

namespace exportguard::validation {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;
using ByName = std::unordered_map<std::string, const Value*>;

constexpr std::ptrdiff_t kMostChanged = 4;  // names that a copy has more or less
constexpr double kSameNaming = 0.9;         // of the model's names; below, equal names are chance

/// `MatMul_3` of a MatMul: a file's way to name what has no name. The number tells nothing.
bool is_made_up(const Value& value) {
  const std::string& op = value.producer()->op();
  std::string_view rest = value.name();
  if (!rest.starts_with(op)) return rest.empty();
  rest.remove_prefix(op.size());
  if (rest.empty()) return true;
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  return rest.front() == '_' && rest.size() > 1 && std::all_of(rest.begin() + 1, rest.end(), is_digit);
}

bool is_chance_of_onnx(const Node& node) {
  static const std::array<std::string_view, 6> kRandom{"RandomNormal",      "RandomNormalLike", "RandomUniform",
                                                       "RandomUniformLike", "Bernoulli",        "Multinomial"};
  return std::ranges::find(kRandom, node.op()) != kRandom.end();
}

// aten::dropout(input, p, train): nothing is drawn unless it trains.
bool is_inactive_dropout(const Node& node) {
  const bool is_dropout = node.op().find("dropout") != std::string::npos && node.arguments().size() > 2;
  const bool* trains = is_dropout ? node.arguments()[2].get_if<bool>() : nullptr;
  return trains != nullptr && !*trains;
}

bool is_chance(const Node& node) {
  if (!node.is_torch()) return is_chance_of_onnx(node);
  if (is_inactive_dropout(node)) return false;
  static const std::array<std::string_view, 9> kRandom{"rand",    "bernoulli", "multinomial", "normal",     "uniform",
                                                       "poisson", "dropout",   "empty",       "exponential"};
  return std::ranges::any_of(kRandom, [&](std::string_view word) {
    const std::size_t at = node.op().find(word);
    return at == 0 || (at != std::string::npos && node.op()[at - 1] == '_' && word != "normal");
  });
}

/// Whether the model's node says that it stands for the torch operator.
bool tells_of(const Node& made, const Node& torch_node) {
  if (made.source() == nullptr) return false;
  const std::string& told = made.source()->target;
  const auto names = [&](const std::string& target) {
    return !target.empty() && told.find(target) != std::string::npos;
  };
  return names(torch_node.qualified_name()) || (torch_node.source() != nullptr && names(torch_node.source()->target));
}

/// Collects pairs; each value is in one pair at the most.
class Pairs {
 public:
  void add(const Value& expected, const Value& got, bool is_sure) {
    if (by_got_.contains(&got) || !taken_.insert(&expected).second) return;
    const bool by_chance = expected.producer() != nullptr && is_chance(*expected.producer());
    by_got_.emplace(&got, AlignedPair{&expected, &got, is_sure, by_chance});
  }

  const Value* find_expected(const Value* got) const {
    const auto found = by_got_.find(got);
    return found == by_got_.end() ? nullptr : found->second.expected;
  }
  bool is_taken(const Value* expected) const { return taken_.contains(expected); }

  /// Those of nodes, in the order of the model.
  std::vector<AlignedPair> in_order(const Graph& model) const {
    std::vector<AlignedPair> pairs;
    for (const Node& node : model) {
      for (std::size_t i = 0; i < node.output_count(); ++i) {
        const auto found = by_got_.find(&node.output(i));
        if (found != by_got_.end() && !node.output(i).is_unused()) pairs.push_back(found->second);
      }
    }
    return pairs;
  }

 private:
  std::unordered_map<const Value*, AlignedPair> by_got_;
  std::unordered_set<const Value*> taken_;
};

ByName named_outputs(const Graph& graph) {
  ByName found;
  for (const Node& node : graph) {
    for (std::size_t i = 0; i < node.output_count(); ++i) {
      if (!node.output(i).name().empty()) found.emplace(node.output(i).name(), &node.output(i));
    }
  }
  return found;
}

// A file calls the value behind an output as the output is called; two outputs may be one value.
void add_outputs(const Graph& reference, const Graph& model, Pairs& pairs) {
  const std::vector<const Value*> expected = outputs_of(reference);
  const std::vector<const Value*> got = outputs_of(model);
  for (std::size_t i = 0; i < std::min(expected.size(), got.size()); ++i) {
    if (got[i]->producer() != nullptr) pairs.add(*expected[i], *got[i], true);
  }
}

void add_inputs(const Graph& reference, const Graph& model, Pairs& pairs) {
  const std::size_t count = std::min(reference.input_count(), model.input_count());
  for (std::size_t i = 0; i < count; ++i) pairs.add(reference.input(i), model.input(i), true);
}

// ------------------------------------------------------------------------------------------------ program and model

/// Whether both say that they stem from one module; one that does not say may.
bool share_module(const Node& a, const Node& b) {
  const bool both_tell = a.source() != nullptr && b.source() != nullptr;
  return !both_tell || a.source()->module == b.source()->module;
}

void align_program(const Graph& reference, const Graph& model, Pairs& pairs) {
  const ByName known = named_outputs(reference);
  for (const Node& node : model) {
    for (std::size_t i = 0; i < node.output_count(); ++i) {
      const auto found = known.find(node.output(i).name());
      if (found == known.end()) continue;
      const Node& expected = *found->second->producer();
      if (share_module(node, expected)) pairs.add(*found->second, node.output(i), tells_of(node, expected));
    }
  }
}

// ------------------------------------------------------------------------------------------------ two models

/// Whether one was made of the other by a change or two: then made-up names are the same as well.
bool is_copy(const ByName& reference, const ByName& model) {
  const auto is_missing = [](const ByName& other) {
    return [&other](const auto& entry) { return !other.contains(entry.first); };
  };
  return std::ranges::count_if(reference, is_missing(model)) + std::ranges::count_if(model, is_missing(reference)) <=
         kMostChanged;
}

double share_of_names(const ByName& known, const Graph& model) {
  std::size_t all = 0;
  std::size_t shared = 0;
  for (const Node& node : model) {
    for (std::size_t i = 0; i < node.output_count(); ++i, ++all) {
      const auto found = known.find(node.output(i).name());
      if (found != known.end() && found->second->producer()->op() == node.op()) ++shared;
    }
  }
  return all == 0 ? 0.0 : static_cast<double>(shared) / static_cast<double>(all);
}

bool is_constant(const Value& value) {
  return value.initializer() != nullptr || (value.producer() != nullptr && value.producer()->is("", "Constant"));
}

/// Dtype and sizes, whether it is a weight or what a Constant node makes, of which the graph may not tell a type.
std::string type_of_constant(const Value& value) {
  const ir::Tensor* tensor = ir::constant_of(value);
  if (tensor == nullptr) return value.type().str();
  return fmt::format("{}[{}]", name(tensor->dtype()), fmt::join(tensor->shape(), ","));
}

/// What a node reads, values of the model by those of the reference beside them; nothing if one has none.
class Readings {
 public:
  explicit Readings(const Pairs& pairs) : pairs_(pairs) {}

  std::string of_reference(const Node& node) const {
    return described(node, [](const Value* value) { return value; });
  }

  std::string of_model(const Node& node) const {
    return described(node, [this](const Value* value) { return pairs_.find_expected(value); });
  }

 private:
  template <typename Lookup>
  std::string described(const Node& node, const Lookup& lookup) const {
    std::string key = fmt::format("{}/{}", node.qualified_name(), node.output_count());
    for (std::size_t i = 0; i < node.input_count(); ++i) {
      const Value* value = node.find_input(i);
      if (value == nullptr) {
        key += " _";
      } else if (is_constant(*value)) {
        key += " " + type_of_constant(*value);
      } else {
        const Value* known = lookup(value);
        if (known == nullptr) return {};
        key += fmt::format(" {}", static_cast<const void*>(known));
      }
    }
    return key;
  }

  const Pairs& pairs_;
};

/// Names of the constants that a node reads: two projections of one input differ in their weights alone.
std::string constants_of(const Node& node) {
  std::string names;
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    const Value* value = node.find_input(i);
    if (value != nullptr && value->initializer() != nullptr) names += value->name() + ' ';
  }
  return names;
}

/// Attributes that are numbers or texts.
std::string attributes_of(const Node& node) {
  std::string text;
  for (const auto& [name, attribute] : node.attributes()) {
    text += name;
    if (const auto* whole = std::get_if<std::int64_t>(&attribute)) text += fmt::format("={}", *whole);
    if (const auto* real = std::get_if<double>(&attribute)) text += fmt::format("={}", *real);
    if (const auto* word = std::get_if<std::string>(&attribute)) text += fmt::format("={}", *word);
    if (const auto* list = std::get_if<std::vector<std::int64_t>>(&attribute))
      text += fmt::format("={}", fmt::join(*list, ","));
  }
  return text;
}

class ModelAligner {
 public:
  ModelAligner(const Graph& reference, const Graph& model, Pairs& pairs)
      : model_(model), pairs_(pairs), readings_(pairs), known_(named_outputs(reference)) {
    has_same_naming_ = share_of_names(known_, model) >= kSameNaming;
    is_copy_ = is_copy(known_, named_outputs(model));
    for (const Node& node : reference) by_reading_[readings_.of_reference(node)].push_back(&node);
  }

  void run() {
    for (const Node& node : model_) {
      if (node.is("", "Constant")) continue;
      for (std::size_t i = 0; i < node.output_count(); ++i) add_by_own_name(node.output(i));
      if (const Node* alike = find_by_reading(node)) add_node(*alike, node);
      for (std::size_t i = 0; i < node.output_count(); ++i) add_by_name(node.output(i));
    }
    std::vector<const Node*> nodes;
    for (const Node& node : model_) nodes.push_back(&node);
    for (const Node* node : nodes | std::views::reverse) add_by_reader(*node);
  }

 private:
  // Another attribute or weight may be the fault, or another way to compute something else.
  void add_node(const Node& expected, const Node& got) {
    const bool is_same = attributes_of(expected) == attributes_of(got) && constants_of(expected) == constants_of(got);
    const bool has_name = expected.output().name() == got.output().name() && (is_copy_ || !is_made_up(got.output()));
    const bool is_sure = is_same || has_name;
    for (std::size_t i = 0; i < got.output_count(); ++i) pairs_.add(expected.output(i), got.output(i), is_sure);
  }

  // A name that a file made up counts other nodes of that operator, and shifts where one is left out.
  void add_by_own_name(const Value& output) {
    const auto found = known_.find(output.name());
    if (found == known_.end() || is_made_up(output)) return;
    const bool is_sure = has_same_naming_ || are_one_place(*found->second->producer(), *output.producer());
    if (is_sure) pairs_.add(*found->second, output, true);
  }

  void add_by_name(const Value& output) {
    const auto found = known_.find(output.name());
    if (found == known_.end() || (is_made_up(output) && !is_copy_)) return;
    pairs_.add(*found->second, output, has_same_naming_ || is_copy_);
  }

  // Where a node and the one beside it read the same but for one input, these inputs should be the same as well: one of
  // them may be what another operator makes. Several inputs are, where the same operator makes each.
  void add_by_reader(const Node& node) {
    const Value* expected = node.output_count() == 0 ? nullptr : pairs_.find_expected(&node.output());
    const Node* alike = expected == nullptr ? nullptr : expected->producer();
    const bool is_alike = alike != nullptr && alike->qualified_name() == node.qualified_name() &&
                          alike->input_count() == node.input_count() && attributes_of(*alike) == attributes_of(node);
    if (!is_alike) return;

    std::vector<std::size_t> others;
    for (std::size_t i = 0; i < node.input_count(); ++i) {
      if (!reads_the_same(alike->find_input(i), node.find_input(i))) others.push_back(i);
    }
    for (const std::size_t i : others) {
      const Value* expected_input = alike->find_input(i);
      const Value* got_input = node.find_input(i);
      if (others.size() == 1 || are_made_alike(expected_input, got_input)) add_if_free(expected_input, got_input);
    }
  }

  static bool are_made_alike(const Value* expected, const Value* got) {
    const Node* a = expected == nullptr ? nullptr : expected->producer();
    const Node* b = got == nullptr ? nullptr : got->producer();
    return a != nullptr && b != nullptr && a->qualified_name() == b->qualified_name() &&
           a->input_count() == b->input_count() && attributes_of(*a) == attributes_of(*b);
  }

  bool reads_the_same(const Value* expected, const Value* got) const {
    if (expected == nullptr || got == nullptr) return expected == got;
    if (is_constant(*expected) && is_constant(*got)) return type_of_constant(*expected) == type_of_constant(*got);
    return pairs_.find_expected(got) == expected;
  }

  void add_if_free(const Value* expected, const Value* got) {
    if (expected == nullptr || got == nullptr) return;
    const bool are_made = expected->producer() != nullptr && got->producer() != nullptr;
    const bool is_free = !pairs_.is_taken(expected) && pairs_.find_expected(got) == nullptr;
    if (are_made && is_free && !is_constant(*expected) && !is_constant(*got)) pairs_.add(*expected, *got, false);
  }

  /// The same operator, for the same line of the same module.
  static bool are_one_place(const Node& a, const Node& b) {
    const ir::Source* one = a.source();
    const ir::Source* other = b.source();
    return one != nullptr && other != nullptr && a.op() == b.op() && one->module == other->module &&
           one->file == other->file && one->line == other->line;
  }

  const Node* find_by_reading(const Node& node) {
    const std::string reading = readings_.of_model(node);
    const auto found = by_reading_.find(reading);
    if (reading.empty() || found == by_reading_.end()) return nullptr;
    std::vector<const Node*> free;
    for (const Node* candidate : found->second) {
      if (candidate->output_count() > 0 && !pairs_.is_taken(&candidate->output())) free.push_back(candidate);
    }
    if (free.empty()) return nullptr;
    const auto best = std::ranges::max_element(free, {}, [&](const Node* other) { return likeness(*other, node); });
    return *best;
  }

  static int likeness(const Node& a, const Node& b) {
    const bool same_name = a.output().name() == b.output().name();
    return 4 * static_cast<int>(same_name) + 2 * static_cast<int>(constants_of(a) == constants_of(b)) +
           static_cast<int>(attributes_of(a) == attributes_of(b));
  }

  const Graph& model_;
  Pairs& pairs_;
  Readings readings_;
  ByName known_;
  bool has_same_naming_ = false;
  bool is_copy_ = false;
  std::unordered_map<std::string, std::vector<const Node*>> by_reading_;
};

bool is_program(const Graph& graph) {
  return std::any_of(graph.begin(), graph.end(), [](const Node& node) { return node.is_torch(); });
}

void add_nodes(const Graph& reference, const Graph& model, Pairs& pairs) {
  if (is_program(reference)) {
    align_program(reference, model, pairs);
  } else {
    ModelAligner(reference, model, pairs).run();
  }
}

}  // namespace

std::vector<const Value*> outputs_of(const Graph& graph) {
  std::vector<const Value*> values;
  for (const Value* output : graph.outputs()) {
    if (output != nullptr) values.push_back(output);
  }
  return values;
}

std::vector<AlignedPair> align(const Graph& reference, const Graph& model) {
  Pairs pairs;
  add_inputs(reference, model, pairs);
  add_outputs(reference, model, pairs);
  add_nodes(reference, model, pairs);
  return pairs.in_order(model);
}

std::vector<AlignedPair> align_bodies(const Graph& reference, const Graph& model, bool is_one_operator,
                                      const std::vector<AlignedPair>& around) {
  Pairs pairs;
  for (const AlignedPair& pair : around) pairs.add(*pair.expected, *pair.got, pair.is_sure);
  if (is_one_operator) {
    add_inputs(reference, model, pairs);
    add_outputs(reference, model, pairs);
  }
  add_nodes(reference, model, pairs);
  return pairs.in_order(model);
}

}  // namespace exportguard::validation
