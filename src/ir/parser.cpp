#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "exportguard/ir/text.h"
#include "ir/lexer.h"
#include "ir/parse_type.h"
#include "ir/tensor_text.h"

namespace exportguard::ir {
namespace {

using Kind = Token::Kind;

constexpr int kMaxDepth = 200;

/// Counts nested graphs and lists, so that a text made of brackets cannot exhaust the stack.
class Nesting {
 public:
  Nesting(const Lexer& in, int& depth) : depth_(depth) {
    if (depth_ >= kMaxDepth) in.fail(fmt::format("graphs and lists are nested more than {} deep", kMaxDepth));
    ++depth_;
  }
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  int& depth_;
};

/// A name and, if the text has one, a type, before the value exists.
struct Declaration {
  Token name;
  Type type;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : in_(text) {}

  std::unique_ptr<Graph> graph_alone() {
    std::unique_ptr<Graph> result = graph();
    if (in_.token().kind != Kind::kEnd) in_.fail_expected("the end of the text behind the graph");
    return result;
  }

  Model model() {
    Model model;
    while (in_.accept_word("opset")) opset(model.opsets);
    while (in_.accept_word("metadata")) metadata(model);
    model.graph = graph();
    while (in_.accept_word("function")) model.functions.push_back(function());
    if (in_.token().kind != Kind::kEnd) in_.fail_expected("a function or the end of the text behind the graph");
    return model;
  }

 private:
  using Scope = std::unordered_map<std::string, Value*>;

  // ---------------------------------------------------------------- models

  void opset(std::map<std::string, std::int64_t>& opsets) {
    const bool is_onnx = in_.token().kind == Kind::kInteger;
    const std::string domain = is_onnx ? std::string() : in_.take_name("a domain or a version behind opset");
    const std::size_t offset = in_.token().offset;
    const std::int64_t version = in_.take_integer("the version of the opset");
    if (!opsets.emplace(domain, version).second) in_.fail_at(offset, fmt::format("opset '{}' is given twice", domain));
  }

  void metadata(Model& model) {
    std::string key = in_.take_string("the key of the metadata, in quotes");
    in_.expect('=', "'=' behind the key of the metadata");
    model.metadata[std::move(key)] = in_.take_string("the metadata, in quotes");
  }

  Function function() {
    Function function;
    function.domain = in_.take_name("the function's domain");
    if (in_.token().kind != Kind::kScope) in_.fail_expected("'::' behind the function's domain");
    in_.advance();
    function.name = in_.take_name("the function's name");
    function.body = std::make_unique<Graph>(function.name);
    scopes_.emplace_back();
    signature(*function.body);
    if (in_.accept_word("attributes")) function.attributes = attribute_names();
    if (in_.accept_word("opsets")) function_opsets(function);
    statements(*function.body);
    scopes_.pop_back();
    return function;
  }

  std::vector<std::string> attribute_names() {
    std::vector<std::string> names;
    in_.expect('(', "'(' behind attributes");
    do {
      names.push_back(in_.take_name("the name of an attribute"));
    } while (in_.accept(','));
    in_.expect(')', "',' or ')' behind the name of an attribute");
    return names;
  }

  void function_opsets(Function& function) {
    in_.expect('(', "'(' behind opsets");
    do {
      opset(function.opsets);
    } while (in_.accept(','));
    in_.expect(')', "',' or ')' behind an opset");
  }

  // ---------------------------------------------------------------- graphs

  std::unique_ptr<Graph> graph() {
    const Nesting nesting(in_, depth_);
    if (!in_.accept_word("graph")) in_.fail_expected("graph");
    auto result = std::make_unique<Graph>();
    scopes_.emplace_back();
    signature(*result);
    statements(*result);
    scopes_.pop_back();
    return result;
  }

  void signature(Graph& graph) {
    in_.expect('(', "'(' and the inputs of the graph");
    if (in_.accept(')')) return;
    do {
      parameter(graph);
    } while (in_.accept(','));
    in_.expect(')', "',' or ')' behind an input");
  }

  void parameter(Graph& graph) {
    Declaration declared = declaration();
    if (!in_.accept('=')) {
      define(declared.name, graph.add_input(name_of(declared.name), std::move(declared.type)));
      return;
    }
    const std::string name = name_of(declared.name);
    if (name.empty())
      in_.fail_at(declared.name.offset, fmt::format("an initializer needs a name, got %{}", declared.name.text));
    require_new(declared.name);
    Value& value = graph.add_initializer(name, parse_elements(in_, declared.type));
    value.set_type(std::move(declared.type));
    define(declared.name, value);
  }

  void statements(Graph& graph) {
    in_.expect(':', "':' and the nodes of the graph");
    while (!in_.accept_word("return")) {
      if (in_.token().kind == Kind::kEnd) in_.fail_expected("a node or return");
      statement(graph);
    }
    in_.expect('(', "'(' and the outputs of the graph");
    if (in_.accept(')')) return;
    do {
      output(graph);
    } while (in_.accept(','));
    in_.expect(')', "',' or ')' behind an output");
  }

  void output(Graph& graph) {
    Value* value = operand("an output: a value or _");
    graph.add_output(value, in_.accept_word("as") ? in_.take_name("the name of the output") : std::string());
  }

  // ---------------------------------------------------------------- values

  Declaration declaration() {
    if (in_.token().kind != Kind::kValue) in_.fail_expected("a value such as %x");
    Declaration declared{in_.token(), Type()};
    in_.advance();
    if (in_.accept(':')) declared.type = parse_type(in_);
    return declared;
  }

  /// `%0` has no name of its own; `%"0"` has.
  static bool is_numbered(const Token& token) {
    return !token.is_quoted && token.text.find_first_not_of("0123456789") == std::string::npos;
  }
  static std::string name_of(const Token& token) { return is_numbered(token) ? std::string() : token.text; }
  static std::string key_of(const Token& token) { return (is_numbered(token) ? '#' : '%') + token.text; }

  Value* find(const Token& token) const {
    const std::string key = key_of(token);
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto found = scope->find(key); found != scope->end()) return found->second;
    }
    return nullptr;
  }

  void require_new(const Token& token) const {
    if (find(token) != nullptr) in_.fail_at(token.offset, fmt::format("%{} is defined twice", token.text));
  }

  void define(const Token& token, Value& value) {
    require_new(token);
    scopes_.back().emplace(key_of(token), &value);
  }

  /// A value, or null for `_`.
  Value* operand(std::string_view what) {
    if (in_.accept_word("_")) return nullptr;
    if (in_.token().kind != Kind::kValue) in_.fail_expected(what);
    Value* value = find(in_.token());
    if (value == nullptr) in_.fail(fmt::format("%{} is not defined", in_.token().text));
    in_.advance();
    return value;
  }

  // ---------------------------------------------------------------- nodes

  void statement(Graph& graph) {
    std::vector<Declaration> outputs;
    if (in_.token().kind == Kind::kValue) {
      do {
        outputs.push_back(declaration());
      } while (in_.accept(','));
      in_.expect('=', "',', ':' or '=' behind the output of a node");
    }

    NodeSpec spec;
    operator_name(spec);
    if (spec.is_torch) {
      arguments(spec);
    } else {
      operands(spec);
    }
    if (in_.accept('{')) attributes(spec);
    spec.outputs.clear();
    for (Declaration& output : outputs) spec.outputs.push_back(std::move(output.type));

    Node& node = graph.append(std::move(spec));
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      node.output(i).set_name(name_of(outputs[i].name));
      define(outputs[i].name, node.output(i));
    }
  }

  void operator_name(NodeSpec& spec) {
    constexpr std::string_view kWhat = "an operator such as MatMul or aten.add.Tensor";
    const Token first = in_.token();
    std::string name = first.kind == Kind::kScope ? std::string() : in_.take_name(kWhat);
    const bool is_scoped = in_.token().kind == Kind::kScope;
    if (is_scoped) in_.advance();
    spec.is_torch = !is_scoped && (first.is_quoted || name.find('.') != std::string::npos);

    if (is_scoped) {
      spec.domain = std::move(name);
      spec.op = in_.take_name("the name of an operator");
    } else if (first.is_quoted) {
      in_.expect('.', "'.' or '::' behind a quoted namespace");
      spec.domain = std::move(name);
      spec.op = in_.take_name("the name of an operator");
    } else {
      const std::size_t dot = name.find('.');
      spec.domain = spec.is_torch ? name.substr(0, dot) : std::string();
      spec.op = spec.is_torch ? name.substr(dot + 1) : name;
    }
  }

  void operands(NodeSpec& spec) {
    in_.expect('(', "'(' and the operands");
    if (in_.accept(')')) return;
    do {
      spec.inputs.push_back(operand("an operand: a value or _"));
    } while (in_.accept(','));
    in_.expect(')', "',' or ')' behind an operand");
  }

  void arguments(NodeSpec& spec) {
    in_.expect('(', "'(' and the arguments");
    if (!in_.is(')') && !in_.is(';')) {
      do {
        spec.arguments.push_back(argument(spec));
      } while (in_.accept(','));
    }
    if (in_.accept(';')) {
      do {
        spec.inputs.push_back(operand("an operand: a value or _"));
      } while (in_.accept(','));
    }
    in_.expect(')', "',' or ')' behind an argument");
  }

  Argument argument(NodeSpec& spec) {
    switch (in_.token().kind) {
      case Kind::kInteger:
        return {in_.take_integer("an integer")};
      case Kind::kFloat:
        return {in_.take_number("a number")};
      case Kind::kString:
        return {in_.take_string("a string")};
      case Kind::kSymbol:
        return symbol();
      case Kind::kName:
        return word(spec);
      default:
        return in_.is('[') ? Argument{argument_list(spec)} : operand_argument(spec);
    }
  }

  Argument operand_argument(NodeSpec& spec) {
    spec.inputs.push_back(operand("an argument"));
    return {Argument::Operand{spec.inputs.size() - 1}};
  }

  Argument symbol() {
    Argument result{Argument::Symbol{in_.token().text}};
    in_.advance();
    return result;
  }

  Argument word(NodeSpec& spec) {
    if (in_.is_word("_")) return operand_argument(spec);
    if (in_.is_word("complex")) return {in_.take_complex()};
    if (in_.accept_word("None")) return {Argument::None()};
    if (in_.accept_word("true")) return {true};
    if (in_.accept_word("false")) return {false};
    if (!in_.accept_word("dtype")) in_.fail_expected("an argument");
    in_.expect(':', "':' behind dtype");
    return {parse_dtype(in_)};
  }

  Argument::List argument_list(NodeSpec& spec) {
    const Nesting nesting(in_, depth_);
    Argument::List list;
    in_.expect('[', "'['");
    if (in_.accept(']')) return list;
    do {
      list.push_back(argument(spec));
    } while (in_.accept(','));
    in_.expect(']', "',' or ']' behind an element");
    return list;
  }

  // ---------------------------------------------------------------- attributes

  void attributes(NodeSpec& spec) {
    do {
      const std::size_t offset = in_.token().offset;
      std::string name = in_.take_name("the name of an attribute");
      if (has_attribute(spec, name)) in_.fail_at(offset, fmt::format("attribute '{}' is given twice", name));
      in_.expect('=', fmt::format("'=' behind the attribute '{}'", name));
      spec.attributes.emplace_back(std::move(name), attribute());
    } while (in_.accept(','));
    in_.expect('}', "',' or '}' behind an attribute");
  }

  static bool has_attribute(const NodeSpec& spec, std::string_view name) {
    return std::ranges::find(spec.attributes, name, &NamedAttribute::first) != spec.attributes.end();
  }

  Attribute attribute() {
    switch (in_.token().kind) {
      case Kind::kInteger:
        return in_.take_integer("an integer");
      case Kind::kFloat:
        return in_.take_number("a number");
      case Kind::kString:
        return in_.take_string("a string");
      case Kind::kName:
        return attribute_word();
      default:
        return attribute_list();
    }
  }

  Attribute attribute_word() {
    if (in_.is_word("graph")) return graph();
    if (in_.accept_word("floats")) return empty_list<double>();
    if (in_.accept_word("strings")) return empty_list<std::string>();
    if (in_.accept_word("type")) {
      in_.expect(':', "':' behind type");
      return parse_type(in_);
    }
    const Type type = parse_type(in_);
    return parse_elements(in_, type);
  }

  template <typename T>
  std::vector<T> empty_list() {
    in_.expect('[', "'['");
    in_.expect(']', "']' of an empty list");
    return {};
  }

  Attribute attribute_list() {
    in_.expect('[', "the value of an attribute");
    if (in_.accept(']')) return std::vector<std::int64_t>();
    const bool is_text = in_.token().kind == Kind::kString;
    Attribute list = is_text ? Attribute(strings()) : numbers();
    in_.expect(']', "',' or ']' behind an element");
    return list;
  }

  std::vector<std::string> strings() {
    std::vector<std::string> list;
    do {
      list.push_back(in_.take_string("a string"));
    } while (in_.accept(','));
    return list;
  }

  /// Integers, unless one of them is written as a float.
  Attribute numbers() {
    std::vector<std::int64_t> integers;
    std::vector<double> all;
    do {
      if (in_.token().kind == Kind::kInteger) integers.push_back(in_.token().integer);
      all.push_back(in_.take_number("a number or a string"));
    } while (in_.accept(','));
    return integers.size() == all.size() ? Attribute(std::move(integers)) : Attribute(std::move(all));
  }

  Lexer in_;
  std::vector<Scope> scopes_;
  int depth_ = 0;
};

}  // namespace

std::unique_ptr<Graph> parse_graph(std::string_view text) { return Parser(text).graph_alone(); }

Model parse_model(std::string_view text) { return Parser(text).model(); }

std::string normalize(std::string_view text) { return print(*parse_graph(text)); }

}  // namespace exportguard::ir
