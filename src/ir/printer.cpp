#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "exportguard/ir/text.h"
#include "ir/literals.h"
#include "ir/tensor_text.h"
#include "ir/value_names.h"

namespace exportguard::ir {
namespace {

constexpr std::size_t kIndent = 2;

bool is_known(const Type& type) { return type.dtype != DType::kUndefined || type.shape || type.is_scalar; }

/// A name that cannot be mistaken for one with a namespace, quoted if need be.
bool is_plain(std::string_view name) { return is_bare_name(name) && name.find('.') == std::string_view::npos; }

std::string operator_name(const Node& node) {
  const std::string& domain = node.domain();
  const std::string& op = node.op();
  if (node.is_torch()) {
    const bool is_bare = is_plain(domain) && is_bare_name(op);
    return is_bare ? domain + '.' + op : ir::quoted(domain) + '.' + ir::quoted(op);
  }
  if (!domain.empty()) return spelled(domain) + "::" + spelled(op);
  return is_plain(op) && op != "return" ? op : "::" + spelled(op);
}

class Printer {
 public:
  Printer(const Graph& graph, const PrintOptions& options) : options_(options), names_(graph) {}

  void graph(const Graph& graph, std::size_t indent) {
    write("graph");
    signature(graph);
    write(":\n");
    body(graph, indent + kIndent);
  }

  void function(const Function& function) {
    write("function {}::{}", spelled(function.domain), spelled(function.name));
    signature(*function.body);
    if (!function.attributes.empty()) {
      std::vector<std::string> attributes;
      for (const std::string& attribute : function.attributes) attributes.push_back(spelled(attribute));
      write(" attributes({})", fmt::join(attributes, ", "));
    }
    if (!function.opsets.empty()) {
      std::vector<std::string> opsets;
      for (const auto& [domain, version] : function.opsets) opsets.push_back(opset_text(domain, version));
      write(" opsets({})", fmt::join(opsets, ", "));
    }
    write(":\n");
    body(*function.body, kIndent);
  }

  static std::string opset_text(const std::string& domain, std::int64_t version) {
    return domain.empty() ? std::to_string(version) : fmt::format("{} {}", spelled(domain), version);
  }

  std::string text() const { return fmt::to_string(out_); }

 private:
  template <typename... Args>
  void write(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  void comma(bool is_first) {
    if (!is_first) write(", ");
  }

  // ---------------------------------------------------------------- graphs

  void signature(const Graph& graph) {
    write("(");
    bool is_first = true;
    for (const auto& input : graph.inputs()) {
      comma(std::exchange(is_first, false));
      typed(*input);
    }
    for (const auto& value : graph.initializers()) {
      comma(std::exchange(is_first, false));
      initializer(*value);
    }
    write(")");
  }

  void typed(const Value& value) {
    write("{}", names_[value]);
    if (options_.types && is_known(value.type())) write(": {}", value.type().str());
  }

  // Its type is part of the elements: without it they cannot be read.
  void initializer(const Value& value) {
    write("{}: ", names_[value]);
    if (value.type().is_scalar) {
      write("{}", value.type().str());
    } else {
      tensor_type(*value.initializer());
    }
    write(" = {}", elements_text(*value.initializer(), options_.max_elements));
  }

  void tensor_type(const Tensor& tensor) { write("{}[{}]", name(tensor.dtype()), fmt::join(tensor.shape(), ",")); }

  void body(const Graph& graph, std::size_t indent) {
    for (const Node& node : graph) {
      write("{:{}}", "", indent);
      this->node(node, indent);
      source(node);
      write("\n");
    }
    write("{:{}}return (", "", indent);
    for (std::size_t i = 0; i < graph.output_count(); ++i) {
      comma(i == 0);
      output(graph, i);
    }
    write(")");
  }

  void output(const Graph& graph, std::size_t i) {
    const Value* value = graph.find_output(i);
    const std::string spelling = value ? names_[*value] : "_";
    write("{}", spelling);
    const std::string& name = graph.output_name(i);
    const bool adds_to_value = !name.empty() && spelling != '%' + spelled(name);
    if (adds_to_value) write(" as {}", spelled(name));
  }

  void source(const Node& node) {
    if (!options_.sources || node.source() == nullptr) return;
    const std::string where = node.source()->where();
    if (!where.empty()) write("  # {}", where);
  }

  // ---------------------------------------------------------------- nodes

  void node(const Node& node, std::size_t indent) {
    for (std::size_t i = 0; i < node.output_count(); ++i) {
      comma(i == 0);
      typed(node.output(i));
    }
    if (node.output_count() > 0) write(" = ");
    write("{}(", operator_name(node));
    if (node.is_torch()) {
      arguments(node);
    } else {
      operands(node);
    }
    write(")");
    attributes(node, indent);
  }

  void operand(const Node& node, std::size_t i) {
    const Value* value = node.find_input(i);
    if (value != nullptr) {
      write("{}", names_[*value]);
    } else if (i < node.input_count()) {
      write("_");
    } else {
      write("<operand {} of {}>", i, node.input_count());  // a fault: the verifier names it
    }
  }

  void operands(const Node& node) {
    for (std::size_t i = 0; i < node.input_count(); ++i) {
      comma(i == 0);
      operand(node, i);
    }
  }

  // Operands that no argument names follow a semicolon.
  void arguments(const Node& node) {
    std::vector<bool> is_named(node.input_count());
    for (std::size_t i = 0; i < node.arguments().size(); ++i) {
      comma(i == 0);
      argument(node, node.arguments()[i], is_named);
    }
    const auto unnamed = std::ranges::count(is_named, false);
    if (unnamed == 0) return;
    bool is_first = true;
    for (std::size_t i = 0; i < is_named.size(); ++i) {
      if (is_named[i]) continue;
      write("{}", std::exchange(is_first, false) ? "; " : ", ");
      operand(node, i);
    }
  }

  void argument(const Node& node, const Argument& argument, std::vector<bool>& is_named) {
    if (const auto* reference = argument.get_if<Argument::Operand>()) {
      if (reference->index < is_named.size()) is_named[reference->index] = true;
      operand(node, reference->index);
    } else if (const auto* list = argument.get_if<Argument::List>()) {
      write("[");
      for (std::size_t i = 0; i < list->size(); ++i) {
        comma(i == 0);
        this->argument(node, (*list)[i], is_named);
      }
      write("]");
    } else {
      std::visit([this](const auto& value) { literal(value); }, argument.value);
    }
  }

  void literal(Argument::None) { write("None"); }
  void literal(Argument::Operand) {}      // written by `argument`
  void literal(const Argument::List&) {}  // written by `argument`
  void literal(bool flag) { write("{}", flag); }
  void literal(std::int64_t number) { write("{}", number); }
  void literal(double number) { write("{}", float_text(number)); }
  void literal(const std::complex<double>& number) {
    write("complex({}, {})", float_text(number.real()), float_text(number.imag()));
  }
  void literal(const std::string& text) { write("{}", ir::quoted(text)); }
  void literal(DType dtype) { write("dtype:{}", name(dtype)); }
  void literal(const Argument::Symbol& symbol) {
    const auto is_bare = [](char c) { return is_name_character(c) || c == ':'; };
    const bool needs_quotes = symbol.name.empty() || !std::ranges::all_of(symbol.name, is_bare);
    write("@{}", needs_quotes ? ir::quoted(symbol.name) : symbol.name);
  }

  // ---------------------------------------------------------------- attributes

  void attributes(const Node& node, std::size_t indent) {
    if (node.attributes().empty()) return;
    write(" {{");
    for (std::size_t i = 0; i < node.attributes().size(); ++i) {
      comma(i == 0);
      write("{}=", spelled(node.attributes()[i].first));
      std::visit([&](const auto& value) { attribute(value, indent); }, node.attributes()[i].second);
    }
    write("}}");
  }

  void attribute(std::int64_t number, std::size_t) { literal(number); }
  void attribute(double number, std::size_t) { literal(number); }
  void attribute(const std::string& text, std::size_t) { literal(text); }
  void attribute(const std::vector<std::int64_t>& numbers, std::size_t) { write("[{}]", fmt::join(numbers, ", ")); }
  void attribute(const std::vector<double>& numbers, std::size_t) { list(numbers, "floats"); }
  void attribute(const std::vector<std::string>& texts, std::size_t) { list(texts, "strings"); }
  void attribute(const Type& type, std::size_t) { write("type:{}", type.str()); }
  void attribute(const std::unique_ptr<Graph>& nested, std::size_t indent) { graph(*nested, indent + kIndent); }
  void attribute(const Tensor& tensor, std::size_t) {
    tensor_type(tensor);
    write("{}", elements_text(tensor, options_.max_elements));
  }

  // Without elements a list does not show what it is a list of.
  template <typename T>
  void list(const std::vector<T>& elements, std::string_view kind) {
    write("{}[", elements.empty() ? kind : "");
    for (std::size_t i = 0; i < elements.size(); ++i) {
      comma(i == 0);
      literal(elements[i]);
    }
    write("]");
  }

  const PrintOptions& options_;
  ValueNames names_;
  fmt::memory_buffer out_;
};

}  // namespace

std::string print(const Graph& graph, const PrintOptions& options) {
  Printer printer(graph, options);
  printer.graph(graph, 0);
  return printer.text() + '\n';
}

std::string print(const Model& model, const PrintOptions& options) {
  std::string text;
  for (const auto& [domain, version] : model.opsets) text += "opset " + Printer::opset_text(domain, version) + '\n';
  for (const auto& [key, value] : model.metadata)
    text += fmt::format("metadata {} = {}\n", ir::quoted(key), ir::quoted(value));
  text += print(*model.graph, options);
  for (const Function& function : model.functions) {
    Printer printer(*function.body, options);
    printer.function(function);
    text += '\n' + printer.text() + '\n';
  }
  return text;
}

}  // namespace exportguard::ir
