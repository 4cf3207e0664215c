#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "optimizer/passes.h"

namespace exportguard::optimizer {
namespace {

using ir::Node;
using ir::Value;

constexpr std::size_t kMostCompared = 4096;  // bytes of a tensor in an attribute

template <typename T>
void append_bits(std::string& key, const T& value) {
  char bits[sizeof(T)];
  std::memcpy(bits, &value, sizeof(T));
  key.append(bits, sizeof(T));
}

void append_text(std::string& key, const std::string& text) {
  append_bits(key, text.size());
  key += text;
}

void append_tensor(std::string& key, const ir::Tensor& tensor) {
  if (tensor.dtype() == DType::kString || tensor.nbytes() > kMostCompared) return append_text(key, tensor.identity());
  append_bits(key, tensor.dtype());
  append_bits(key, tensor.shape().size());
  for (const std::int64_t size : tensor.shape()) append_bits(key, size);
  tensor.visit_bytes([&](const void* data, std::size_t size) { key.append(static_cast<const char*>(data), size); });
}

/// The content of an attribute, with nothing left out.
struct AppendAttribute {
  std::string& key;

  void operator()(std::int64_t value) const { append_bits(key, value); }
  void operator()(double value) const { append_bits(key, value); }
  void operator()(const std::string& text) const { append_text(key, text); }
  void operator()(const ir::Tensor& tensor) const { append_tensor(key, tensor); }
  void operator()(const ir::Type& type) const { append_text(key, type.str()); }
  void operator()(const std::unique_ptr<ir::Graph>&) const {}  // such nodes are not compared
  void operator()(const std::vector<std::string>& texts) const {
    append_bits(key, texts.size());
    for (const std::string& text : texts) append_text(key, text);
  }
  template <typename T>
  void operator()(const std::vector<T>& values) const {
    append_bits(key, values.size());
    for (const T& value : values) append_bits(key, value);
  }
};

bool is_one_of(const std::string& op, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, op) != names.end();
}

bool is_random(const Node& node) {
  return is_one_of(node.op(), {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike",
                               "RandomUniform", "RandomUniformLike"});
}

bool is_commutative(const Node& node) {
  return node.domain().empty() && is_one_of(node.op(), {"Add", "Mul", "And", "Or", "Xor", "Equal"});
}

bool is_standard(const Node& node) { return node.domain().empty() || node.domain() == "ai.onnx.ml"; }

/// Which nodes give the same for the same, whenever they run.
class Repeatable {
 public:
  explicit Repeatable(const ir::Model& model) {
    for (const ir::Function& function : model.functions) functions_[{function.domain, function.name}].body = &function;
  }

  bool operator()(const Node& node) {
    if (node.is_torch() || is_random(node)) return false;
    for (const ir::Graph* nested : node.subgraphs()) {
      if (!all_of(*nested)) return false;
    }
    return is_standard(node) || calls_repeatable(node);
  }

 private:
  struct Known {
    const ir::Function* body = nullptr;
    std::optional<bool> answer;
  };

  bool all_of(const ir::Graph& graph) {
    return std::ranges::all_of(graph, [&](const Node& node) { return node.is("", "return") || (*this)(node); });
  }

  bool calls_repeatable(const Node& node) {
    const auto found = functions_.find({node.domain(), node.op()});
    if (found == functions_.end()) return false;
    Known& known = found->second;
    if (known.answer) return *known.answer;
    known.answer = false;  // one that calls itself
    known.answer = all_of(*known.body->body);
    return *known.answer;
  }

  std::map<std::pair<std::string, std::string>, Known> functions_;
};

std::string key_of(const Node& node) {
  std::string key = node.domain() + ':' + node.op();
  std::vector<const Value*> inputs;
  for (std::size_t i = 0; i < node.input_count(); ++i) inputs.push_back(node.find_input(i));
  if (is_commutative(node)) std::ranges::sort(inputs);
  append_bits(key, inputs.size());
  for (const Value* input : inputs) append_bits(key, input);
  append_bits(key, node.output_count());
  std::vector<const ir::NamedAttribute*> attributes;
  for (const ir::NamedAttribute& attribute : node.attributes()) attributes.push_back(&attribute);
  std::ranges::sort(attributes, {}, [](const ir::NamedAttribute* attribute) { return attribute->first; });
  for (const ir::NamedAttribute* attribute : attributes) {
    append_text(key, attribute->first);
    append_bits(key, attribute->second.index());
    std::visit(AppendAttribute{key}, attribute->second);
  }
  return key;
}

/// A value that nobody reads may be an output that is left out: it is not there to be read.
bool has_what_is_read(const Node& kept, const Node& other) {
  for (std::size_t i = 0; i < other.output_count(); ++i) {
    if (other.output(i).dtype() != kept.output(i).dtype() && !other.output(i).is_unused()) return false;
  }
  return true;
}

void merge(Node& kept, Node& other) {
  for (std::size_t i = 0; i < other.output_count(); ++i) {
    Value& value = kept.output(i);
    if (!value.type().shape) value.set_type(other.output(i).type());
    if (value.name().empty()) value.set_name(other.output(i).name());
    other.output(i).replace_all_uses_with(value);
  }
  other.graph().erase(other);
}

/// The nodes that a graph can see, by what they compute; those of graphs around it included.
class Merger {
 public:
  explicit Merger(const ir::Model& model) : is_repeatable_(model) {}

  std::size_t merge_in(ir::Graph& graph) {
    scopes_.emplace_back();
    std::size_t merged = 0;
    for (Node& node : graph) {
      for (ir::Graph* nested : node.subgraphs()) merged += merge_in(*nested);
      const bool is_comparable = node.output_count() > 0 && node.subgraphs().empty() && is_repeatable_(node);
      if (is_comparable) merged += merge_node(node);
    }
    scopes_.pop_back();
    return merged;
  }

 private:
  std::size_t merge_node(Node& node) {
    std::string key = key_of(node);
    for (const auto& scope : scopes_) {
      const auto found = scope.find(key);
      if (found == scope.end() || !has_what_is_read(*found->second, node)) continue;
      merge(*found->second, node);
      return 1;
    }
    scopes_.back().emplace(std::move(key), &node);
    return 0;
  }

  Repeatable is_repeatable_;
  std::vector<std::unordered_map<std::string, Node*>> scopes_;
};

}  // namespace

std::size_t merge_common_subexpressions(const ir::Model& model, ir::Graph& graph) {
  return Merger(model).merge_in(graph);
}

}  // namespace exportguard::optimizer
