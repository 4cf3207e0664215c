// Reads schemas and makes boxed values, as torch 2.11 to 2.13 have them.
#include "operators/boxed_arguments.h"

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>

#include <limits>

#include "exportguard/common/torch_dtypes.h"

namespace exportguard::operators {
namespace {

using c10::IValue;
using ir::Argument;

c10::TypePtr without_optional(const c10::TypePtr& type) {
  const auto* optional = type->castRaw<c10::OptionalType>();
  return optional != nullptr ? optional->getElementType() : type;
}

c10::MemoryFormat memory_format(const std::string& name) {
  if (name == "preserve_format") return c10::MemoryFormat::Preserve;
  if (name == "channels_last") return c10::MemoryFormat::ChannelsLast;
  return name == "channels_last_3d" ? c10::MemoryFormat::ChannelsLast3d : c10::MemoryFormat::Contiguous;
}

IValue literal_number(const Argument& argument, const c10::TypePtr& type) {
  at::Scalar scalar;
  if (const auto* flag = argument.get_if<bool>()) scalar = *flag;
  if (const auto* whole = argument.get_if<std::int64_t>()) scalar = *whole;
  if (const auto* real = argument.get_if<double>()) scalar = *real;
  if (const auto* complex = argument.get_if<std::complex<double>>()) {
    scalar = c10::complex<double>(complex->real(), complex->imag());
  }
  return boxed_number(scalar, type);
}

// Turns the arguments of a node into what the schema asks for.
class Boxing {
 public:
  explicit Boxing(const BoxedContext& context) : context_(context) {}

  IValue value(const Argument& argument, const c10::TypePtr& declared, const c10::TypePtr& real) const {
    if (argument.is_none()) return {};
    const c10::TypePtr type = without_optional(declared);
    if (const auto* list = argument.get_if<Argument::List>()) return listed(*list, type);
    if (const auto* operand = argument.get_if<Argument::Operand>()) return context_.operand(operand->index, type);
    if (const auto* symbol = argument.get_if<Argument::Symbol>()) return named(symbol->name, without_optional(real));
    if (const auto* dtype = argument.get_if<DType>()) return static_cast<std::int64_t>(to_scalar_type(*dtype));
    if (const auto* text = argument.get_if<std::string>())
      return type->kind() == c10::TypeKind::DeviceObjType ? IValue(c10::Device(*text)) : IValue(*text);
    return literal_number(argument, type);
  }

 private:
  IValue listed(const Argument::List& list, const c10::TypePtr& type) const {
    const auto* of_list = type->castRaw<c10::ListType>();
    if (of_list == nullptr) context_.fail(fmt::format("a list stands where the schema has {}", type->str()));
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
    return context_.device;
  }

  const BoxedContext& context_;
};

bool may_be_left_out(const c10::Argument& declared) {
  return declared.default_value() || declared.type()->kind() == c10::TypeKind::OptionalType;
}

}  // namespace

IValue boxed_number(const at::Scalar& scalar, const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::FloatType:
      return scalar.toDouble();
    case c10::TypeKind::IntType:
      return scalar.toLong();
    case c10::TypeKind::BoolType:
      return scalar.toBool();
    case c10::TypeKind::TensorType: {
      at::Tensor wrapped = at::scalar_tensor(scalar, at::TensorOptions(at::kCPU).dtype(scalar.type()));
      wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
      return wrapped;
    }
    default:
      return scalar;
  }
}

torch::jit::Stack boxed_arguments(std::span<const Argument> given, const c10::FunctionSchema& schema,
                                  const BoxedContext& context) {
  const auto& declared = schema.arguments();
  if (given.size() > declared.size()) context.fail("it has more arguments than torch's schema");

  const Boxing boxing(context);
  torch::jit::Stack stack;
  for (std::size_t i = 0; i < declared.size(); ++i) {
    if (i < given.size()) {
      stack.push_back(boxing.value(given[i], declared[i].type(), declared[i].real_type()));
      continue;
    }
    if (!may_be_left_out(declared[i])) context.fail("an argument without a default is missing");
    stack.push_back(declared[i].default_value() ? *declared[i].default_value() : IValue());
  }
  return stack;
}

}  // namespace exportguard::operators
