#include "exportguard/lowering/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "exportguard/common/errors.h"
#include "exportguard/common/torch_dtypes.h"
#include "exportguard/ir/places.h"
#include "lowering/kernels.h"
#include "lowering/shared.h"

namespace exportguard::lowering {
namespace {

using ir::Argument;

const Argument kNone{};

std::string describe(const ir::Node& node, const Argument& argument) {
  if (argument.is_none()) return "None";
  if (const auto* operand = argument.get_if<Argument::Operand>()) {
    const Value& value = node.input(operand->index);
    return value.name() + ": " + value.type().str();
  }
  if (const auto* number = argument.get_if<std::int64_t>()) return std::to_string(*number);
  if (const auto* number = argument.get_if<double>()) return fmt::format("{}", *number);
  if (const auto* flag = argument.get_if<bool>()) return *flag ? "true" : "false";
  if (const auto* text = argument.get_if<std::string>()) return '"' + *text + '"';
  if (const auto* dtype = argument.get_if<DType>()) return std::string(name(*dtype));
  if (const auto* symbol = argument.get_if<Argument::Symbol>()) return symbol->name;
  if (const auto* list = argument.get_if<Argument::List>()) return fmt::format("a list of {}", list->size());
  return "a complex number";
}

/// Kinds of dtypes in torch's promotion order.
int promotion_kind(DType dtype) {
  if (is_complex(dtype)) return 3;
  if (is_floating(dtype)) return 2;
  return dtype == DType::kBool ? 0 : 1;
}

DType merge(DType a, DType b) {
  if (a == DType::kUndefined) return b;
  return b == DType::kUndefined ? a : promote_types(a, b);
}

/// `lower` counts only if its kind is above that of `higher`.
DType merge_categories(DType higher, DType lower) {
  if (higher == DType::kUndefined || lower == DType::kUndefined) return merge(higher, lower);
  return promotion_kind(lower) > promotion_kind(higher) ? promote_types(higher, lower) : higher;
}

/// What a Python number of that kind counts as.
DType default_of_kind(DType dtype) {
  switch (promotion_kind(dtype)) {
    case 0:
      return DType::kBool;
    case 1:
      return DType::kInt64;
    case 2:
      return DType::kFloat32;
    default:
      return DType::kComplex64;
  }
}

DType literal_dtype(const Argument& argument) {
  if (argument.get_if<bool>()) return DType::kBool;
  if (argument.get_if<std::int64_t>()) return DType::kInt64;
  if (argument.get_if<double>()) return DType::kFloat32;
  if (argument.get_if<std::complex<double>>()) return DType::kComplex64;
  return DType::kUndefined;
}

}  // namespace

LoweringContext::LoweringContext(Shared& shared, ir::Node& node)
    : Builder(shared.memory, {&node.graph(), &node, node.source()}), shared_(shared), node_(&node) {}
LoweringContext::~LoweringContext() = default;

Target LoweringContext::target() const { return shared_.target; }

void LoweringContext::fail(const std::string& reason) const {
  throw LoweringError(fmt::format("cannot lower {}: {}", ir::placed(node_->qualified_name(), node_->source()), reason));
}

// ------------------------------------------------------------------------------------------------ arguments

std::size_t LoweringContext::argument_count() const {
  const Schema* schema = shared_.schemas.find(*node_);
  return schema ? schema->parameters.size() : node_->arguments().size();
}

const Argument& LoweringContext::argument(std::size_t i) const {
  if (i < node_->arguments().size()) return node_->arguments()[i];
  const Schema* schema = shared_.schemas.find(*node_);
  if (schema == nullptr || i >= schema->parameters.size()) return kNone;
  const auto& value = schema->parameters[i].default_value;
  if (!value) fail(fmt::format("argument {} ({}) is missing", i, schema->parameters[i].name));
  return *value;
}

void LoweringContext::wrong_argument(std::size_t i, std::string_view expected) const {
  const Schema* schema = shared_.schemas.find(*node_);
  const bool is_named = schema != nullptr && i < schema->parameters.size();
  const std::string label = is_named ? fmt::format("{} ({})", i, schema->parameters[i].name) : std::to_string(i);
  fail(fmt::format("argument {} must be {}, got {}", label, expected, describe(*node_, argument(i))));
}

bool LoweringContext::has(std::size_t i) const { return !argument(i).is_none(); }

Value* LoweringContext::find_input(std::size_t i) {
  const Argument& a = argument(i);
  if (const auto* operand = a.get_if<Argument::Operand>()) return &node_->input(operand->index);
  if (!a.is_none()) wrong_argument(i, "a tensor or None");
  return nullptr;
}

Value* LoweringContext::input(std::size_t i) {
  Value* value = argument(i).get_if<Argument::Operand>() ? find_input(i) : nullptr;
  if (value == nullptr) wrong_argument(i, "a tensor");
  return value;
}

std::vector<Value*> LoweringContext::inputs(std::size_t i) {
  const auto* list = argument(i).get_if<Argument::List>();
  if (list == nullptr) wrong_argument(i, "a list of tensors");
  std::vector<Value*> values;
  for (const Argument& item : *list) {
    const auto* operand = item.get_if<Argument::Operand>();
    if (operand == nullptr && !item.is_none()) wrong_argument(i, "a list of tensors");
    values.push_back(operand ? &node_->input(operand->index) : nullptr);
  }
  return values;
}

bool LoweringContext::is_value(std::size_t i) const { return argument(i).get_if<Argument::Operand>() != nullptr; }

std::optional<std::int64_t> LoweringContext::find_integer(std::size_t i) {
  const Argument& a = argument(i);
  if (const auto* number = a.get_if<std::int64_t>()) return *number;
  if (const auto* flag = a.get_if<bool>()) return *flag ? 1 : 0;
  const auto* operand = a.get_if<Argument::Operand>();
  if (operand != nullptr) {
    const ir::Type& type = node_->input(operand->index).type();
    if (type.is_scalar && type.value) return type.value->constant();
    return std::nullopt;
  }
  if (!a.is_none()) wrong_argument(i, "an integer");
  return std::nullopt;
}

std::int64_t LoweringContext::integer(std::size_t i) {
  const auto number = find_integer(i);
  if (!number) wrong_argument(i, "an integer known at conversion");
  return *number;
}

std::optional<double> LoweringContext::find_number(std::size_t i) {
  if (const auto* number = argument(i).get_if<double>()) return *number;
  const auto number = find_integer(i);
  return number ? std::optional(static_cast<double>(*number)) : std::nullopt;
}

double LoweringContext::number(std::size_t i) {
  const auto number = find_number(i);
  if (!number) wrong_argument(i, "a number known at conversion");
  return *number;
}

double LoweringContext::number_or(std::size_t i, double missing) { return has(i) ? number(i) : missing; }

bool LoweringContext::flag(std::size_t i) { return integer(i) != 0; }

std::string_view LoweringContext::text(std::size_t i) {
  const Argument& a = argument(i);
  if (const auto* text = a.get_if<std::string>()) return *text;
  if (const auto* symbol = a.get_if<Argument::Symbol>()) return symbol->name;
  wrong_argument(i, "a string");
}

std::optional<DType> LoweringContext::find_dtype(std::size_t i) {
  const Argument& a = argument(i);
  if (const auto* dtype = a.get_if<DType>()) return *dtype;
  if (!a.is_none()) wrong_argument(i, "a dtype");
  return std::nullopt;
}

DType LoweringContext::dtype(std::size_t i) {
  const auto dtype = find_dtype(i);
  if (!dtype) wrong_argument(i, "a dtype");
  return *dtype;
}

std::vector<std::int64_t> LoweringContext::integers(std::size_t i) {
  const auto* list = argument(i).get_if<Argument::List>();
  if (list == nullptr) return {integer(i)};
  std::vector<std::int64_t> numbers;
  for (const Size& size : sizes(i)) {
    if (!size.number()) wrong_argument(i, "integers known at conversion");
    numbers.push_back(*size.number());
  }
  return numbers;
}

std::vector<double> LoweringContext::numbers(std::size_t i) {
  const auto* list = argument(i).get_if<Argument::List>();
  if (list == nullptr) return {number(i)};
  std::vector<double> numbers;
  for (const Argument& item : *list) {
    if (const auto* real = item.get_if<double>()) {
      numbers.push_back(*real);
    } else if (const auto* whole = item.get_if<std::int64_t>()) {
      numbers.push_back(static_cast<double>(*whole));
    } else {
      wrong_argument(i, "numbers known at conversion");
    }
  }
  return numbers;
}

std::int64_t LoweringContext::axis(std::size_t i, std::size_t rank) {
  const std::int64_t given = integer(i);
  const std::int64_t bound = std::max<std::int64_t>(static_cast<std::int64_t>(rank), 1);  // rank 0 takes 0 and -1
  if (given < -bound || given >= bound) {
    fail(fmt::format("axis must be between {} and {}, got {}", -bound, bound - 1, given));
  }
  return given < 0 ? given + bound : given;
}

std::vector<std::int64_t> LoweringContext::axes(std::size_t i, std::size_t rank) {
  std::vector<std::int64_t> result;
  if (has(i)) result = integers(i);
  const std::int64_t bound = std::max<std::int64_t>(static_cast<std::int64_t>(rank), 1);
  for (std::int64_t& axis : result) {
    if (axis < -bound || axis >= bound)
      fail(fmt::format("axis must be between {} and {}, got {}", -bound, bound - 1, axis));
    if (axis < 0) axis += bound;
  }
  if (rank == 0) return {};
  if (result.empty()) {
    result.resize(rank);
    std::iota(result.begin(), result.end(), 0);
  }
  std::ranges::sort(result);
  return result;
}

Value* LoweringContext::scalar(std::size_t i, DType dtype) {
  const Argument& a = argument(i);
  if (const auto* operand = a.get_if<Argument::Operand>()) {
    Value& value = node_->input(operand->index);
    if (value.type().is_scalar && value.type().value && value.type().value->is_constant()) {
      return constant(*value.type().value->constant(), dtype);
    }
    return cast(&value, dtype);
  }
  if (const auto* number = a.get_if<std::int64_t>()) return constant(*number, dtype);
  if (const auto* flag = a.get_if<bool>()) return constant(static_cast<std::int64_t>(*flag), dtype);
  if (const auto* number = a.get_if<double>()) return constant(*number, dtype);
  wrong_argument(i, "a number or a tensor");
}

Value* LoweringContext::dim(std::size_t i) {
  if (const auto number = find_integer(i)) return ints({*number});
  return scalar_as_dim(input(i));
}

std::vector<Size> LoweringContext::sizes(std::size_t i) {
  const auto* list = argument(i).get_if<Argument::List>();
  if (list == nullptr) return {is_value(i) && !find_integer(i) ? Size(dim(i)) : Size(integer(i))};
  std::vector<Size> result;
  for (const Argument& item : *list) {
    if (const auto* number = item.get_if<std::int64_t>()) {
      result.emplace_back(*number);
      continue;
    }
    const auto* operand = item.get_if<Argument::Operand>();
    if (operand == nullptr) wrong_argument(i, "a list of integers");
    Value& value = node_->input(operand->index);
    const auto known = value.type().value ? value.type().value->constant() : std::nullopt;
    result.push_back(known ? Size(*known) : Size(scalar_as_dim(&value)));
  }
  return result;
}

// ------------------------------------------------------------------------------------------------ facts

const ir::Type& LoweringContext::output_type(std::size_t i) const { return node_->output(i).type(); }

DType LoweringContext::promoted(std::initializer_list<std::size_t> arguments) {
  DType tensors = DType::kUndefined;
  DType zero_rank = DType::kUndefined;
  DType numbers = DType::kUndefined;

  for (const std::size_t i : arguments) {
    if (!is_value(i)) {
      numbers = merge(numbers, literal_dtype(argument(i)));
      continue;
    }
    const ir::Type& type = input(i)->type();
    if (type.is_scalar) {
      numbers = merge(numbers, default_of_kind(type.dtype));
    } else if (type.shape && type.shape->empty()) {
      zero_rank = merge(zero_rank, type.dtype);
    } else {
      tensors = merge(tensors, type.dtype);
    }
  }
  return merge_categories(merge_categories(tensors, zero_rank), numbers);
}

// ------------------------------------------------------------------------------------------------ building

std::vector<Size> LoweringContext::output_sizes(std::size_t i) {
  const ir::Type& type = output_type(i);
  if (!type.shape) fail(fmt::format("the rank of output {} must be known", i));
  std::vector<Size> sizes;
  for (const ir::Dim& dim : *type.shape) {
    const auto number = dim.constant();
    sizes.push_back(number ? Size(*number) : Size(dim_value(dim)));
  }
  return sizes;
}

Value* LoweringContext::reshape_like_output(Value* value, std::size_t i) {
  const ir::Type& type = output_type(i);
  if (!type.shape) fail(fmt::format("the rank of output {} must be known", i));
  if (value->type().shape == type.shape) return value;
  std::vector<Size> sizes;
  std::size_t unknown = 0;
  for (const ir::Dim& dim : *type.shape) {
    if (const auto number = dim.constant()) {
      sizes.emplace_back(*number);
    } else if (Value* known = find_dim_value(dim)) {
      sizes.emplace_back(known);
    } else {
      sizes.emplace_back(-1);
      ++unknown;
    }
  }
  require(unknown <= 1, fmt::format("the sizes of {} cannot be computed from the inputs", type.str()));
  return reshape(value, sizes);
}

Value* LoweringContext::where(Value* condition, Value* a, Value* b) {
  const DType dtype = kernel_dtype(*this, "Where", a->dtype());
  return cast(op("Where", {condition, cast(a, dtype), cast(b, dtype)}), a->dtype());
}

// ------------------------------------------------------------------------------------------------ nested graphs

ir::Graph& LoweringContext::body(std::string_view name) {
  if (node_->find_attribute(name) == nullptr) fail(fmt::format("the body {} is missing", name));
  return node_->subgraph(name);
}

std::vector<Value*> LoweringContext::inlined(const ir::Graph& graph, const std::vector<Value*>& arguments) {
  ir::Graph& here = this->graph();
  ir::Node* before = place().before;
  ir::Node* previous = before ? before->previous() : here.last();
  ir::NodeSpec spec;
  spec.op = "Identity";  // reads the outputs while the nodes that give them are replaced
  spec.inputs = here.splice(graph, arguments, before);
  ir::Node& reader = before ? here.insert_before(*before, std::move(spec)) : here.append(std::move(spec));
  lower_nodes(shared_, previous ? *previous->next() : *here.first(), reader);
  std::vector<Value*> results;
  for (std::size_t i = 0; i < reader.input_count(); ++i) results.push_back(reader.find_input(i));
  here.erase(reader);
  return results;
}

void LoweringContext::lower_nested(ir::Graph& graph) {
  const Inside inside(*this, graph);
  lower_graph(shared_, graph);
}

// ------------------------------------------------------------------------------------------------ ends

void LoweringContext::results(const std::vector<Value*>& values) {
  require(values.size() == node_->output_count(),
          fmt::format("the lowering gave {} results for {} outputs", values.size(), node_->output_count()));

  for (std::size_t i = 0; i < values.size(); ++i) {
    Value& old = node_->output(i);
    if (values[i] == nullptr) {
      require(old.is_unused(), fmt::format("output {} is read but has no lowering", i));
      continue;
    }

    Value* made = old.dtype() == DType::kUndefined ? values[i] : cast(values[i], old.dtype());
    const bool is_fresh = made->producer() != nullptr && !made->producer()->is_torch() && made->name().empty();
    if (is_fresh) {
      made->set_name(old.name());
      made->set_type(old.type());
    }
    note_sizes(*made, old.type());
    old.replace_all_uses_with(*made);
  }
  node_->graph().erase(*node_);
}

void LoweringContext::result(Value* value) { results({value}); }

}  // namespace exportguard::lowering
