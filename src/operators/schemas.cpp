#include "operators/schemas.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>

#include <algorithm>

#include "exportguard/common/torch_dtypes.h"

namespace exportguard::operators {
namespace {

using ir::Argument;

Argument symbol(const char* name) { return {Argument::Symbol{name}}; }

/// Enums are ints in a schema's defaults.
Argument enum_argument(c10::TypeKind kind, std::int64_t value) {
  if (kind == c10::TypeKind::ScalarTypeType) return {from_scalar_type(static_cast<c10::ScalarType>(value))};
  if (kind == c10::TypeKind::LayoutType) return symbol("strided");
  if (kind != c10::TypeKind::MemoryFormatType) return {value};
  switch (static_cast<c10::MemoryFormat>(value)) {
    case c10::MemoryFormat::Preserve:
      return symbol("preserve_format");
    case c10::MemoryFormat::ChannelsLast:
      return symbol("channels_last");
    case c10::MemoryFormat::ChannelsLast3d:
      return symbol("channels_last_3d");
    default:
      return symbol("contiguous_format");
  }
}

c10::TypeKind element_kind(const c10::Type& type) {
  const auto* optional = type.castRaw<c10::OptionalType>();
  return optional ? optional->getElementType()->kind() : type.kind();
}

std::optional<Argument> find_argument(const c10::IValue& value, c10::TypeKind kind) {
  if (value.isNone()) return Argument{Argument::None{}};
  if (value.isBool()) return Argument{value.toBool()};
  if (value.isInt()) return enum_argument(kind, value.toInt());
  if (value.isDouble()) return Argument{value.toDouble()};
  if (value.isString()) return Argument{value.toStringRef()};
  if (!value.isList()) return std::nullopt;
  Argument::List items;
  for (const c10::IValue& item : c10::IValue(value).toListRef()) {
    std::optional<Argument> made = find_argument(item, c10::TypeKind::AnyType);
    if (!made) return std::nullopt;
    items.push_back(std::move(*made));
  }
  return Argument{std::move(items)};
}

}  // namespace

std::string_view base_name(std::string_view op) { return op.substr(0, op.find('.')); }

std::string_view overload_name(std::string_view op) {
  const std::size_t dot = op.find('.');
  const std::string_view overload = dot == std::string_view::npos ? std::string_view() : op.substr(dot + 1);
  return overload == "default" ? std::string_view() : overload;
}

std::optional<c10::OperatorHandle> find_operator(std::string_view domain, std::string_view op) {
  const c10::OperatorName name(fmt::format("{}::{}", domain, base_name(op)), std::string(overload_name(op)));
  return c10::Dispatcher::singleton().findSchema(name);
}

const c10::FunctionSchema* find_schema(std::string_view domain, std::string_view op) {
  const auto handle = find_operator(domain, op);
  return handle ? &handle->schema() : nullptr;
}

std::optional<Argument> find_default(const c10::Argument& parameter) {
  const auto& value = parameter.default_value();
  return value ? find_argument(*value, element_kind(*parameter.real_type())) : std::nullopt;
}

bool is_written(const c10::Argument& argument) { return argument.alias_info() && argument.alias_info()->isWrite(); }

bool writes(const c10::FunctionSchema& schema) { return std::ranges::any_of(schema.arguments(), is_written); }

bool is_composed(const c10::OperatorHandle& handle) {
  return handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

}  // namespace exportguard::operators
