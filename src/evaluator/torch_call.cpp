// Calls an operator of torch by name. Reads schemas and passes boxed values, as torch 2.11 to 2.13 have them.
#include "evaluator/torch_call.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>

#include "evaluator/call.h"
#include "exportguard/common/torch_dtypes.h"
#include "operators/schemas.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;
using c10::IValue;
using ir::Argument;

std::optional<c10::OperatorHandle> find_schema(const ir::Node& node) {
  const bool is_overload = node.op().find('.') != std::string::npos;
  return is_overload ? operators::find_operator(node.domain(), node.op()) : std::nullopt;
}

c10::TypePtr without_optional(const c10::TypePtr& type) {
  const auto* optional = type->castRaw<c10::OptionalType>();
  return optional != nullptr ? optional->getElementType() : type;
}

// Turns the arguments of a node into what the schema asks for.
class Arguments {
 public:
  explicit Arguments(const Call& call) : call_(call) {}

  IValue value(const Argument& argument, const c10::TypePtr& declared, const c10::TypePtr& real) const {
    if (argument.is_none()) return {};
    const c10::TypePtr type = without_optional(declared);
    if (const auto* list = argument.get_if<Argument::List>()) return listed(*list, type);
    if (const auto* operand = argument.get_if<Argument::Operand>()) return operand_value(operand->index, type);
    if (const auto* symbol = argument.get_if<Argument::Symbol>()) return named(symbol->name, without_optional(real));
    if (const auto* dtype = argument.get_if<DType>()) return static_cast<std::int64_t>(to_scalar_type(*dtype));
    if (const auto* text = argument.get_if<std::string>())
      return type->kind() == c10::TypeKind::DeviceObjType ? IValue(c10::Device(*text)) : IValue(*text);
    return number(argument, type);
  }

 private:
  static IValue number(const Argument& argument, const c10::TypePtr& type) {
    at::Scalar scalar;
    if (const auto* flag = argument.get_if<bool>()) scalar = *flag;
    if (const auto* whole = argument.get_if<std::int64_t>()) scalar = *whole;
    if (const auto* real = argument.get_if<double>()) scalar = *real;
    if (const auto* complex = argument.get_if<std::complex<double>>()) {
      scalar = c10::complex<double>(complex->real(), complex->imag());
    }
    return as(scalar, type);
  }

  // A number that stands where the schema has a tensor does not decide the dtype of the result.
  static IValue as(const at::Scalar& scalar, const c10::TypePtr& type) {
    switch (type->kind()) {
      case c10::TypeKind::FloatType:
        return scalar.toDouble();
      case c10::TypeKind::IntType:
        return scalar.toLong();
      case c10::TypeKind::BoolType:
        return scalar.toBool();
      case c10::TypeKind::TensorType: {
        Tensor wrapped = at::scalar_tensor(scalar, at::TensorOptions(at::kCPU).dtype(scalar.type()));
        wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
        return wrapped;
      }
      default:
        return scalar;
    }
  }

  IValue operand_value(std::size_t index, const c10::TypePtr& type) const {
    const Datum& datum = call_.datum(index);
    if (datum.items != nullptr) return tensors(*datum.items);
    if (datum.is_none()) return {};
    const ir::Value* value = call_.node().find_input(index);
    const bool is_number = value != nullptr && value->type().is_scalar;
    if (type->kind() == c10::TypeKind::TensorType && !is_number) return datum.tensor;
    return as(datum.tensor.item(), type);
  }

  static IValue tensors(const std::vector<Datum>& items) {
    c10::List<Tensor> list;
    for (const Datum& item : items) list.push_back(item.tensor);
    return list;
  }

  IValue listed(const Argument::List& list, const c10::TypePtr& type) const {
    const auto* of_list = type->castRaw<c10::ListType>();
    if (of_list == nullptr) call_.fail(fmt::format("a list stands where the schema has {}", type->str()));
    const c10::TypePtr element = of_list->getElementType();
    c10::impl::GenericList values(element);
    for (const Argument& item : list) values.push_back(value(item, element, element));
    return values;
  }

  IValue named(const std::string& name, const c10::TypePtr& type) const {
    if (name == "inf") return std::numeric_limits<double>::infinity();
    if (name == "-inf") return -std::numeric_limits<double>::infinity();
    if (type->kind() == c10::TypeKind::LayoutType) return static_cast<std::int64_t>(c10::kStrided);
    if (type->kind() == c10::TypeKind::MemoryFormatType) return static_cast<std::int64_t>(memory_format(name));
    return call_.device();  // the program's own device is the one that it was exported on
  }

  static c10::MemoryFormat memory_format(const std::string& name) {
    if (name == "preserve_format") return c10::MemoryFormat::Preserve;
    if (name == "channels_last") return c10::MemoryFormat::ChannelsLast;
    return name == "channels_last_3d" ? c10::MemoryFormat::ChannelsLast3d : c10::MemoryFormat::Contiguous;
  }

  const Call& call_;
};

Datum number_datum(const at::Scalar& scalar, const c10::Device& device) {
  const Tensor tensor = at::scalar_tensor(scalar, at::TensorOptions(device).dtype(scalar.type()));
  return Datum::of(tensor, from_scalar_type(tensor.scalar_type()));
}

void add_result(Call& call, const IValue& value) {
  if (value.isTensor()) {
    const Tensor& tensor = value.toTensor();
    return tensor.defined() ? call.result(tensor) : call.result(Datum());
  }
  if (value.isTensorList()) {
    for (const Tensor& tensor : value.toTensorVector()) call.result(tensor);
    return;
  }
  call.result(value.isScalar() || value.isBool() ? number_datum(value.toScalar(), call.device()) : Datum());
}

// Ones and zeros that the schema lets a caller leave out come from it.
void run_dispatched(Call& call) {
  const c10::OperatorHandle op = *find_schema(call.node());
  const auto& declared = op.schema().arguments();
  const std::vector<Argument>& given = call.node().arguments();
  call.require(given.size() <= declared.size(), "it has more arguments than torch's schema");

  const Arguments arguments(call);
  torch::jit::Stack stack;
  for (std::size_t i = 0; i < declared.size(); ++i) {
    const bool is_given = i < given.size();
    call.require(is_given || declared[i].default_value() || declared[i].type()->kind() == c10::TypeKind::OptionalType,
                 "an argument without a default is missing");
    if (is_given) {
      stack.push_back(arguments.value(given[i], declared[i].type(), declared[i].real_type()));
    } else {
      stack.push_back(declared[i].default_value() ? *declared[i].default_value() : IValue());
    }
  }

  op.callBoxed(stack);
  for (const IValue& value : stack) add_result(call, value);
}

}  // namespace

Operator find_torch_operator(const ir::Node& node) {
  if (const Operator row = OperatorTable::builtin().find(node.qualified_name())) return row;
  const auto schema = find_schema(node);
  return schema && !schema->schema().is_mutable() ? run_dispatched : nullptr;
}

}  // namespace exportguard::evaluator
