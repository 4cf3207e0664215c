#include "lowering/complex_parts.h"

#include <ATen/ops/imag.h>
#include <ATen/ops/real.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "exportguard/common/errors.h"
#include "exportguard/ir/places.h"
#include "lowering/complex_bodies.h"

namespace exportguard::lowering {
namespace {

using ir::Argument;

const Argument kNone{};

ir::NodeSpec aten_node(std::string_view op, ir::Type type) {
  ir::NodeSpec spec;
  spec.domain = "aten";
  spec.op = op;
  spec.is_torch = true;
  spec.outputs = {std::move(type)};
  return spec;
}

ir::Type with_last_axis_of_two(const Value& value) {
  ir::Type type = real_type(value.type());
  if (type.shape) type.shape->push_back(2);
  return type;
}

Value* select_last(ir::Graph& graph, Value& value, std::int64_t index) {
  ir::NodeSpec spec = aten_node("select.int", real_type(value.type()));
  spec.inputs = {&value};
  spec.arguments = {{Argument::Operand{0}}, literal(std::int64_t{-1}), literal(index)};
  ir::Node* first = graph.first();
  return &(first ? graph.insert_before(*first, std::move(spec)) : graph.append(std::move(spec))).output();
}

/// The parts of every input. While the graph is rewritten, inputs keep their complex types, by which their readers are
/// known.
std::set<const ir::Node*> separate_inputs(ir::Graph& graph, ComplexValues& values) {
  std::set<const ir::Node*> selections;
  for (const auto& input : graph.inputs()) {
    if (!is_complex(input->dtype())) continue;
    const Parts parts = {select_last(graph, *input, 0), select_last(graph, *input, 1)};
    selections.insert({parts.real->producer(), parts.imaginary->producer()});
    values.set(*input, parts);
  }
  return selections;
}

/// Inputs take real numbers with a last axis of 2.
void retype_inputs(ir::Graph& graph) {
  for (const auto& input : graph.inputs()) {
    if (is_complex(input->dtype())) input->set_type(with_last_axis_of_two(*input));
  }
}

void separate_outputs(ir::Graph& graph, ComplexValues& values) {
  for (std::size_t i = 0; i < graph.output_count(); ++i) {
    Value* output = graph.find_output(i);
    if (output == nullptr || !is_complex(output->dtype())) continue;
    const Parts parts = values.parts(*output);
    ir::NodeSpec spec = aten_node("stack.default", with_last_axis_of_two(*output));
    spec.inputs = {parts.real, parts.imaginary};
    spec.arguments = {{Argument::List{{Argument::Operand{0}}, {Argument::Operand{1}}}}, literal(std::int64_t{-1})};
    Value& stacked = graph.append(std::move(spec)).output();
    stacked.set_name(output->name());
    graph.set_output(i, &stacked);
  }
}

}  // namespace

bool touches_complex(const ir::Node& node) {
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    const Value* input = node.find_input(i);
    if (input != nullptr && is_complex(input->dtype())) return true;
  }
  for (std::size_t i = 0; i < node.output_count(); ++i) {
    if (is_complex(node.output(i).dtype())) return true;
  }
  return false;
}

DType real_dtype(DType dtype) {
  if (dtype == DType::kComplex64) return DType::kFloat32;
  return dtype == DType::kComplex128 ? DType::kFloat64 : dtype;
}

ir::Type real_type(const ir::Type& type) {
  ir::Type result = type;
  result.dtype = real_dtype(type.dtype);
  return result;
}

Argument literal(std::int64_t number) { return {number}; }
Argument literal(double number) { return {number}; }

// ------------------------------------------------------------------------------------------------ values

Parts ComplexValues::parts(Value& value) {
  const auto known = parts_.find(&value);
  if (known != parts_.end()) return known->second;
  const ir::Tensor* tensor = value.initializer();
  if (tensor == nullptr) throw LoweringError(fmt::format("the complex value {} has no parts", value.name()));
  const Parts made = {&graph_.add_initializer(value.name() + ".real", ir::Tensor(at::real(tensor->aten()))),
                      &graph_.add_initializer(value.name() + ".imag", ir::Tensor(at::imag(tensor->aten())))};
  parts_.emplace(&value, made);
  return made;
}

// ------------------------------------------------------------------------------------------------ one node

void ComplexSite::fail(const std::string& reason) const {
  throw LoweringError(fmt::format("cannot lower {}: {}", ir::placed(node_.qualified_name(), node_.source()), reason));
}

const Argument& ComplexSite::argument(std::size_t i) const {
  return i < node_.arguments().size() ? node_.arguments()[i] : kNone;
}

bool ComplexSite::has(std::size_t argument) const { return !this->argument(argument).is_none(); }

bool ComplexSite::is_complex(std::size_t argument) const {
  const Argument& a = this->argument(argument);
  if (const auto* operand = a.get_if<Argument::Operand>()) {
    return exportguard::is_complex(node_.input(operand->index).dtype());
  }
  return a.get_if<std::complex<double>>() != nullptr;
}

Value& ComplexSite::value(std::size_t argument) const {
  const auto* operand = this->argument(argument).get_if<Argument::Operand>();
  if (operand == nullptr) fail(fmt::format("argument {} must be a tensor", argument));
  return node_.input(operand->index);
}

std::int64_t ComplexSite::integer(std::size_t argument) const {
  const Argument& a = this->argument(argument);
  if (const auto* flag = a.get_if<bool>()) return *flag ? 1 : 0;
  const auto* number = a.get_if<std::int64_t>();
  if (number == nullptr) fail(fmt::format("argument {} must be an integer known at conversion", argument));
  return *number;
}

std::vector<std::int64_t> ComplexSite::integers(std::size_t argument) const {
  const auto* list = this->argument(argument).get_if<Argument::List>();
  if (list == nullptr) return {integer(argument)};
  std::vector<std::int64_t> numbers;
  for (const Argument& item : *list) {
    const auto* number = item.get_if<std::int64_t>();
    if (number == nullptr) fail(fmt::format("argument {} must be integers known at conversion", argument));
    numbers.push_back(*number);
  }
  return numbers;
}

std::pair<Item, std::optional<Item>> ComplexSite::number(std::size_t argument) {
  const Argument& a = this->argument(argument);
  if (const auto* complex = a.get_if<std::complex<double>>())
    return {literal(complex->real()), literal(complex->imag())};
  if (a.get_if<Argument::Operand>() == nullptr) return {a, std::nullopt};
  Value& operand = value(argument);
  if (!exportguard::is_complex(operand.dtype())) return {&operand, std::nullopt};
  const Parts split = values_.parts(operand);
  return {split.real, split.imaginary};
}

Value* ComplexSite::emit(std::string_view op, std::vector<Item> items, ir::Type type) {
  ir::NodeSpec spec = aten_node(op, std::move(type));
  spec.source = node_.source();
  for (Item& item : items) {
    if (auto* operand = std::get_if<Value*>(&item)) {
      spec.arguments.push_back({Argument::Operand{spec.inputs.size()}});
      spec.inputs.push_back(*operand);
    } else {
      spec.arguments.push_back(std::move(std::get<Argument>(item)));
    }
  }
  return &values_.graph().insert_before(node_, std::move(spec)).output();
}

Value* ComplexSite::onnx(std::string_view op, std::vector<Value*> inputs, std::vector<ir::NamedAttribute> attributes,
                         ir::Type type) {
  ir::NodeSpec spec;
  spec.op = op;
  spec.inputs = std::move(inputs);
  spec.attributes = std::move(attributes);
  spec.outputs = {std::move(type)};
  spec.source = node_.source();
  return &values_.graph().insert_before(node_, std::move(spec)).output();
}

Value* ComplexSite::integers_constant(const std::vector<std::int64_t>& numbers) {
  std::vector<ir::NamedAttribute> attributes;
  attributes.emplace_back("value", ir::Tensor::ints(numbers));
  return onnx("Constant", {}, std::move(attributes),
              ir::Type::tensor(DType::kInt64, ir::Shape{static_cast<std::int64_t>(numbers.size())}));
}

Value* ComplexSite::zeros_like(Value& value) { return emit("zeros_like.default", {&value}, value.type()); }

std::vector<Value*> ComplexSite::again(const std::vector<Value*>& operands, std::vector<Argument> arguments) {
  ir::NodeSpec spec = aten_node(node_.op(), {});
  spec.domain = node_.domain();
  spec.source = node_.source();
  spec.inputs = operands;
  spec.arguments = std::move(arguments);
  spec.outputs.clear();
  for (std::size_t i = 0; i < node_.output_count(); ++i) spec.outputs.push_back(output_type(i));
  const ir::Node& made = values_.graph().insert_before(node_, std::move(spec));
  std::vector<Value*> results;
  for (std::size_t i = 0; i < made.output_count(); ++i) results.push_back(&made.output(i));
  return results;
}

Argument ComplexSite::argument_of_row(const Argument& argument, std::vector<Value*>& operands) {
  const auto pushed = [&](Value* value) {
    operands.push_back(value);
    return Argument{Argument::Operand{operands.size() - 1}};
  };
  if (const auto* list = argument.get_if<Argument::List>()) {
    Argument::List items;
    for (const Argument& item : *list) items.push_back(argument_of_row(item, operands));
    return {std::move(items)};
  }
  const auto* operand = argument.get_if<Argument::Operand>();
  if (operand == nullptr) return argument;
  Value& value = node_.input(operand->index);
  if (!exportguard::is_complex(value.dtype())) return pushed(&value);
  const Parts split = values_.parts(value);
  return {Argument::List{pushed(split.real), pushed(split.imaginary)}};
}

std::vector<Argument> ComplexSite::side_by_side(const std::vector<Argument>& arguments, std::vector<Value*>& operands) {
  std::vector<Argument> result;
  const auto push = [&](Value* value) {
    result.push_back({Argument::Operand{operands.size()}});
    operands.push_back(value);
  };
  for (const Argument& argument : arguments) {
    const auto* operand = argument.get_if<Argument::Operand>();
    if (const auto* list = argument.get_if<Argument::List>()) {
      result.push_back({side_by_side(*list, operands)});
    } else if (operand == nullptr) {
      result.push_back(argument);
    } else if (Value& value = node_.input(operand->index); exportguard::is_complex(value.dtype())) {
      const Parts split = values_.parts(value);
      push(split.real);
      push(split.imaginary);
    } else {
      push(&value);
    }
  }
  return result;
}

std::vector<ir::Type> ComplexSite::types_of_parts() const {
  std::vector<ir::Type> types;
  for (std::size_t i = 0; i < node_.output_count(); ++i)
    types.resize(types.size() + parts_of_output(i), output_type(i));
  return types;
}

void ComplexSite::give_parts_of(const ir::Node& made) {
  for (std::size_t i = 0, next = 0; i < node_.output_count(); ++i) {
    Value& first = made.output(next++);
    if (parts_of_output(i) == 2) {
      give({&first, &made.output(next++)}, i);
    } else {
      node_.output(i).replace_all_uses_with(first);
    }
  }
}

void ComplexSite::leave_to_row() {
  ir::NodeSpec spec = aten_node(node_.op(), {});
  spec.domain = "complex";
  spec.source = node_.source();
  for (const Argument& argument : node_.arguments()) spec.arguments.push_back(argument_of_row(argument, spec.inputs));
  spec.outputs = types_of_parts();
  give_parts_of(values_.graph().insert_before(node_, std::move(spec)));
}

void ComplexSite::leave_to_bodies() {
  ir::NodeSpec spec = aten_node(node_.op(), {});
  spec.domain = node_.domain();
  spec.source = node_.source();
  spec.arguments = side_by_side(node_.arguments(), spec.inputs);
  for (const auto& [name, attribute] : node_.attributes()) {
    const auto* body = std::get_if<std::unique_ptr<ir::Graph>>(&attribute);
    if (body != nullptr) spec.attributes.emplace_back(name, (*body)->clone());
  }
  spec.outputs = types_of_parts();
  give_parts_of(values_.graph().insert_before(node_, std::move(spec)));
}

// ------------------------------------------------------------------------------------------------ the graph

namespace {

constexpr std::string_view kInsteadOfComplex = "compute with torch.view_as_real of them instead";
constexpr std::string_view kInsteadOfEigen =
    "eigenvalues of any matrix are found by an iteration that ONNX does not have: write torch.linalg.eigh for a "
    "symmetric matrix, torch.linalg.svd for singular values, or return the matrix and take its eigenvalues outside";

bool is_eigen(std::string_view target) { return target.starts_with("aten.linalg_eig"); }

/// Rewrites a graph and the bodies in it; operators without a rule are collected on the way.
class Separation {
 public:
  Separation(const LoweringTable& table, int opset) : table_(table), opset_(opset) {}

  void main_graph(ir::Graph& graph) {
    ComplexValues values(graph);
    const Nodes rewritten = nodes(graph, values, separate_inputs(graph, values));
    if (!unknown_.empty()) refuse();
    separate_outputs(graph, values);
    erase(graph, rewritten);
    retype_inputs(graph);
  }

 private:
  using Nodes = std::vector<ir::Node*>;

  Nodes nodes(ir::Graph& graph, ComplexValues& values, const std::set<const ir::Node*>& selections) {
    Nodes rewritten;
    for (ir::Node& node : graph) {
      if (!node.is_torch() || selections.contains(&node)) continue;
      for (ir::Graph* nested : node.subgraphs()) body(*nested);
      if (!touches_complex(node)) continue;
      const ComplexRule rule = node.subgraphs().empty() ? table_.find_complex(node.qualified_name()) : separate_control;
      if (rule == nullptr) note_unknown(node);
      if (!unknown_.empty()) continue;  // its operands may have no parts
      ComplexSite site(values, node, opset_);
      rule(site);
      rewritten.push_back(&node);
    }
    return rewritten;
  }

  void body(ir::Graph& graph) {
    ComplexValues values(graph);
    separate_body_inputs(graph, values);
    const Nodes rewritten = nodes(graph, values, {});
    if (!unknown_.empty()) return;
    separate_body_outputs(graph, values);
    erase(graph, rewritten);
    erase_body_inputs(graph);
  }

  static void erase(ir::Graph& graph, const Nodes& rewritten) {
    for (auto node = rewritten.rbegin(); node != rewritten.rend(); ++node) graph.erase(**node);
  }

  void note_unknown(const ir::Node& node) {
    const std::string where = node.source() ? node.source()->where() : std::string();
    std::set<std::string>& places = unknown_[node.qualified_name()];
    if (!where.empty()) places.insert(where);
  }

  [[noreturn]] void refuse() const {
    std::vector<std::string> lines;
    for (const auto& [target, places] : unknown_)
      lines.push_back(places.empty() ? target : fmt::format("{} ({})", target, fmt::join(places, "; ")));
    const bool asks_for_eigenvalues =
        std::ranges::all_of(unknown_, [](const auto& entry) { return is_eigen(entry.first); });
    throw LoweringError(fmt::format("no rule for complex tensors in {}; {}", fmt::join(lines, ", "),
                                    asks_for_eigenvalues ? kInsteadOfEigen : kInsteadOfComplex));
  }

  const LoweringTable& table_;
  int opset_;
  std::map<std::string, std::set<std::string>> unknown_;  // and where they are
};

}  // namespace

void separate_complex(ir::Graph& graph, const LoweringTable& table, int opset) {
  Separation(table, opset).main_graph(graph);
}

}  // namespace exportguard::lowering
