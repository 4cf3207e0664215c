#include "python/operator_calls.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>
#include <pybind11/stl.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>
#include <variant>

#include "operators/schemas.h"

namespace exportguard::python {
namespace {

using c10::IValue;
using Values = std::vector<IValue>;

/// The lists that an argument with values in it may be.
enum class ListKind : std::uint8_t { kTensors, kOptionalTensors, kInts };

/// A list some of whose entries are values.
struct ListOf {
  ListKind kind;
  std::vector<std::variant<IValue, ValueNumber>> items;
};

/// One argument of a call; a number that is given for a tensor becomes one.
struct Operand {
  std::variant<IValue, ValueNumber, ListOf> content;
  bool is_tensor;
};

/// Which sizes a tensor is to have, `item` of the results if there are several.
struct Expected {
  std::size_t item;
  std::vector<std::int64_t> sizes;  ///< numbers, and below 0 places in a table
};

/// A call; without an operator the choice of an item of its one operand.
struct Call {
  std::optional<c10::OperatorHandle> op;
  std::vector<Operand> operands;
  std::size_t item = 0;
  std::vector<std::size_t> last_uses;
  std::vector<Expected> expected;
};

bool is_value(py::handle given) { return py::isinstance<ValueNumber>(given); }

bool has_values(py::handle given) {
  if (!PyList_Check(given.ptr()) && !PyTuple_Check(given.ptr())) return is_value(given);
  return std::ranges::any_of(py::reinterpret_borrow<py::sequence>(given), has_values);
}

c10::TypePtr without_optional(const c10::TypePtr& type) {
  const auto optional = type->cast<c10::OptionalType>();
  return optional ? optional->getElementType() : type;
}

std::optional<ListKind> list_kind(const c10::TypePtr& type) {
  const auto list = without_optional(type)->cast<c10::ListType>();
  if (!list) return std::nullopt;
  const c10::TypePtr& element = list->getElementType();
  if (element->kind() == c10::TypeKind::TensorType) return ListKind::kTensors;
  if (element->kind() == c10::TypeKind::IntType || element->kind() == c10::TypeKind::SymIntType) return ListKind::kInts;
  const bool is_optional_tensor = without_optional(element)->kind() == c10::TypeKind::TensorType;
  return is_optional_tensor ? std::optional(ListKind::kOptionalTensors) : std::nullopt;
}

IValue number_as_tensor(const IValue& value) {
  at::Tensor tensor = at::scalar_to_tensor(value.toScalar());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

IValue list_of(const ListOf& list, const Values& values) {
  const auto item = [&values](const std::variant<IValue, ValueNumber>& entry) -> const IValue& {
    const auto* value = std::get_if<ValueNumber>(&entry);
    return value != nullptr ? values[value->number] : std::get<IValue>(entry);
  };
  if (list.kind == ListKind::kTensors) {
    c10::List<at::Tensor> tensors;
    for (const auto& entry : list.items) tensors.push_back(item(entry).toTensor());
    return tensors;
  }
  if (list.kind == ListKind::kOptionalTensors) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const auto& entry : list.items) tensors.push_back(item(entry).toOptional<at::Tensor>());
    return tensors;
  }
  c10::List<std::int64_t> numbers;
  for (const auto& entry : list.items) numbers.push_back(item(entry).toInt());
  return numbers;
}

IValue argument_of(const Operand& operand, const Values& values) {
  if (const auto* list = std::get_if<ListOf>(&operand.content)) return list_of(*list, values);
  const auto* value = std::get_if<ValueNumber>(&operand.content);
  const IValue& found = value != nullptr ? values[value->number] : std::get<IValue>(operand.content);
  return operand.is_tensor && found.isScalar() ? number_as_tensor(found) : found;
}

IValue item_of(const IValue& values, std::size_t item) {
  return values.isTuple() ? values.toTupleRef().elements().at(item) : values.toListRef().at(item);
}

IValue result_of(const Call& call, const Values& values) {
  if (!call.op) return item_of(argument_of(call.operands.front(), values), call.item);
  torch::jit::Stack stack;
  stack.reserve(call.operands.size());
  for (const Operand& operand : call.operands) stack.push_back(argument_of(operand, values));
  call.op->callBoxed(stack);
  if (stack.size() == 1) return std::move(stack.front());
  return stack.empty() ? IValue() : IValue(c10::ivalue::Tuple::create(std::move(stack)));
}

IValue constant_of(const c10::Argument& argument, py::handle given) {
  const torch::jit::ToIValueAllowNumbersAsTensors allowed(true);
  return torch::jit::toIValue(given, argument.real_type(), argument.N());
}

const at::Tensor* tensor_of(const IValue& result, std::size_t item) {
  if (result.isTensor()) return item == 0 ? &result.toTensor() : nullptr;
  if (result.isTuple()) {
    const auto& elements = result.toTupleRef().elements();
    return item < elements.size() && elements[item].isTensor() ? &elements[item].toTensor() : nullptr;
  }
  if (!result.isTensorList()) return nullptr;
  const c10::ArrayRef<IValue> tensors = result.toListRef();
  return item < tensors.size() ? &tensors[item].toTensor() : nullptr;
}

bool is_as_expected(const IValue& result, const Expected& expected, const std::vector<std::int64_t>& table) {
  const at::Tensor* tensor = tensor_of(result, expected.item);
  if (tensor == nullptr || !tensor->defined()) return true;
  const c10::IntArrayRef sizes = tensor->sizes();
  return std::ranges::equal(sizes, expected.sizes, [&table](std::int64_t size, std::int64_t told) {
    const std::int64_t known = told < 0 ? table.at(static_cast<std::size_t>(-1 - told)) : told;
    return known < 0 || known == size;
  });
}

/// An input of a run: it says itself what it is.
IValue input_of(py::handle given) {
  if (THPVariable_Check(given.ptr())) return THPVariable_Unpack(given.ptr());
  if (PyBool_Check(given.ptr())) return given.cast<bool>();
  if (PyLong_Check(given.ptr())) return given.cast<std::int64_t>();
  return given.cast<double>();
}

}  // namespace

struct OperatorCalls::Impl {
  std::size_t inputs;
  std::vector<Call> calls;
  std::vector<std::size_t> wanted;

  std::size_t append(Call call) {
    calls.push_back(std::move(call));
    return inputs + calls.size() - 1;
  }

  ValueNumber known(py::handle given) const {
    const auto value = given.cast<ValueNumber>();
    if (value.number >= inputs + calls.size()) {
      throw std::invalid_argument(fmt::format("value {} is not known yet, of {}", value.number, inputs + calls.size()));
    }
    return value;
  }

  Operand operand(const c10::Argument& argument, py::handle given) const {
    const bool is_tensor = without_optional(argument.real_type())->kind() == c10::TypeKind::TensorType;
    if (is_value(given)) return {known(given), is_tensor};
    if (!has_values(given)) return {constant_of(argument, given), false};
    const std::optional<ListKind> kind = list_kind(argument.real_type());
    if (!kind) throw std::invalid_argument(fmt::format("values in {} cannot be read", argument.name()));
    ListOf list{*kind, {}};
    for (const py::handle entry : py::reinterpret_borrow<py::sequence>(given)) list.items.push_back(item(entry));
    return {std::move(list), false};
  }

  std::variant<IValue, ValueNumber> item(py::handle given) const {
    if (is_value(given)) return known(given);
    return given.is_none() ? IValue() : input_of(given);
  }

  /// The wanted values; nothing if one is not as expected, where there is a table.
  std::optional<py::list> run(const py::sequence& given, const std::vector<std::int64_t>* table) const {
    if (given.size() != inputs) {
      throw std::invalid_argument(fmt::format("{} inputs are needed, got {}", inputs, given.size()));
    }
    Values values;
    values.reserve(inputs + calls.size());
    for (const py::handle input : given) values.push_back(input_of(input));
    for (const Call& call : calls) {
      values.push_back(result_of(call, values));
      const auto is_met = [&](const Expected& one) { return is_as_expected(values.back(), one, *table); };
      if (table != nullptr && !std::ranges::all_of(call.expected, is_met)) return std::nullopt;
      for (const std::size_t dead : call.last_uses) values[dead] = IValue();
    }
    py::list found;
    for (const std::size_t value : wanted) found.append(torch::jit::toPyObject(values[value]));
    return found;
  }

  static void add_uses(const Operand& operand, std::vector<std::size_t>& uses) {
    const auto add = [&uses](const auto& content) {
      const auto* value = std::get_if<ValueNumber>(&content);
      if (value != nullptr) uses.push_back(value->number);
    };
    add(operand.content);
    const auto* list = std::get_if<ListOf>(&operand.content);
    if (list != nullptr) std::ranges::for_each(list->items, add);
  }
};

OperatorCalls::OperatorCalls(std::size_t inputs) : impl_(std::make_unique<Impl>(Impl{inputs, {}, {}})) {}
OperatorCalls::~OperatorCalls() = default;
OperatorCalls::OperatorCalls(OperatorCalls&&) noexcept = default;
OperatorCalls& OperatorCalls::operator=(OperatorCalls&&) noexcept = default;

std::size_t OperatorCalls::add(const std::string& name, const std::string& overload, const py::tuple& args,
                               const py::dict& kwargs) {
  const std::size_t colons = name.find("::");
  const std::string op = colons == std::string::npos ? name : name.substr(colons + 2);
  Call call{operators::find_operator(name.substr(0, colons), op + "." + (overload.empty() ? "default" : overload)),
            {},
            0,
            {},
            {}};
  if (!call.op) throw std::invalid_argument(fmt::format("no operator {}.{}", name, overload));

  const std::vector<c10::Argument>& arguments = call.op->schema().arguments();
  std::size_t given = args.size() + kwargs.size();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::Argument& argument = arguments[i];
    if (i < args.size()) {
      call.operands.push_back(impl_->operand(argument, args[i]));
    } else if (kwargs.contains(argument.name())) {
      call.operands.push_back(impl_->operand(argument, kwargs[argument.name().c_str()]));
    } else if (argument.default_value()) {
      call.operands.push_back({*argument.default_value(), false});
      ++given;
    } else {
      throw std::invalid_argument(fmt::format("{}.{} needs {}", name, overload, argument.name()));
    }
  }
  if (given != arguments.size()) throw std::invalid_argument(fmt::format("{}.{}: arguments left", name, overload));
  return impl_->append(std::move(call));
}

std::size_t OperatorCalls::pick(ValueNumber value, std::size_t item) {
  return impl_->append({std::nullopt, {{value, false}}, item, {}, {}});
}

void OperatorCalls::want(const std::vector<std::size_t>& values) {
  impl_->wanted = values;
  std::vector<bool> is_used(impl_->inputs + impl_->calls.size(), false);
  for (const std::size_t value : values) is_used.at(value) = true;
  for (auto call = impl_->calls.rbegin(); call != impl_->calls.rend(); ++call) {
    std::vector<std::size_t> uses;
    for (const Operand& operand : call->operands) Impl::add_uses(operand, uses);
    for (const std::size_t value : uses) {
      if (!is_used[value]) call->last_uses.push_back(value);
      is_used[value] = true;
    }
  }
}

void OperatorCalls::expect(std::size_t value, std::size_t item, std::vector<std::int64_t> sizes) {
  if (value < impl_->inputs) throw std::invalid_argument(fmt::format("value {} is an input", value));
  impl_->calls.at(value - impl_->inputs).expected.push_back({item, std::move(sizes)});
}

py::list OperatorCalls::run(const py::sequence& inputs) const { return *impl_->run(inputs, nullptr); }

std::optional<py::list> OperatorCalls::run_as_expected(const py::sequence& inputs,
                                                       const std::vector<std::int64_t>& table) const {
  return impl_->run(inputs, &table);
}

void bind_operator_calls(py::module_& m) {
  py::class_<ValueNumber>(m, "ValueNumber", "A value of a list of calls, in the arguments of a call.")
      .def(py::init<std::size_t>(), py::arg("number"));
  py::class_<OperatorCalls>(m, "OperatorCalls", "Operator calls that are made again and again with other inputs.")
      .def(py::init<std::size_t>(), py::arg("inputs"))
      .def("add", &OperatorCalls::add, py::arg("name"), py::arg("overload"), py::arg("args"), py::arg("kwargs"),
           "Appends a call of an operator of torch's dispatcher; the number of its result.")
      .def("pick", &OperatorCalls::pick, py::arg("value"), py::arg("item"),
           "Appends the choice of one of several results; its number.")
      .def("want", &OperatorCalls::want, py::arg("values"), "Says which values are wanted.")
      .def("expect", &OperatorCalls::expect, py::arg("value"), py::arg("item"), py::arg("sizes"),
           "Says which sizes a tensor of a value is to have: numbers, and -1 - k for the k-th of a run's table.")
      .def("run", &OperatorCalls::run, py::arg("inputs"), "The wanted values.")
      .def("run_as_expected", &OperatorCalls::run_as_expected, py::arg("inputs"), py::arg("table"),
           "The wanted values; None if a tensor has other sizes. A -1 in the table stands for any size.");
}

}  // namespace exportguard::python
