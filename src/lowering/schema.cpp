#include "lowering/schema.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "exportguard/common/torch_dtypes.h"

namespace exportguard::lowering {
namespace {

std::optional<ir::Argument> to_argument(const c10::IValue& value);

template <typename List>
ir::Argument to_list(const List& list) {
  ir::Argument::List items;
  for (const auto& item : list) items.push_back({item});
  return {std::move(items)};
}

std::optional<ir::Argument> to_argument(const c10::IValue& value) {
  if (value.isNone()) return ir::Argument{ir::Argument::None{}};
  if (value.isBool()) return ir::Argument{value.toBool()};
  if (value.isInt()) return ir::Argument{static_cast<std::int64_t>(value.toInt())};
  if (value.isDouble()) return ir::Argument{value.toDouble()};
  if (value.isString()) return ir::Argument{value.toStringRef()};
  if (value.isIntList()) return to_list(value.toIntVector());
  if (value.isDoubleList()) return to_list(value.toDoubleVector());
  if (value.isBoolList()) return to_list(value.toBoolList().vec());
  if (value.isList() && value.toListRef().empty()) return ir::Argument{ir::Argument::List{}};
  return std::nullopt;
}

std::optional<Schema> look_up(const ir::Node& node) {
  const std::string& op = node.op();
  const std::size_t dot = op.find('.');
  const std::string name = node.domain() + "::" + op.substr(0, dot);
  std::string overload = dot == std::string::npos ? "" : op.substr(dot + 1);
  if (overload == "default") overload.clear();
  const auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!handle) return std::nullopt;
  Schema schema;
  for (const c10::Argument& argument : handle->schema().arguments()) {
    const auto& value = argument.default_value();
    schema.parameters.push_back({argument.name(), value ? to_argument(*value) : std::nullopt});
  }
  return schema;
}

}  // namespace

const Schema* SchemaCache::find(const ir::Node& node) {
  const auto [row, is_new] = schemas_.try_emplace(node.qualified_name());
  if (is_new) row->second = look_up(node);
  return row->second ? &*row->second : nullptr;
}

}  // namespace exportguard::lowering
