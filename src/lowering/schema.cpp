#include "lowering/schema.h"

#include <ATen/core/function_schema.h>

#include "operators/schemas.h"

namespace exportguard::lowering {
namespace {

std::optional<Schema> look_up(const ir::Node& node) {
  const c10::FunctionSchema* known = operators::find_schema(node.domain(), node.op());
  if (!known) return std::nullopt;
  Schema schema;
  for (const c10::Argument& argument : known->arguments())
    schema.parameters.push_back({argument.name(), operators::find_default(argument)});
  return schema;
}

}  // namespace

const Schema* SchemaCache::find(const ir::Node& node) {
  const auto [row, is_new] = schemas_.try_emplace(node.qualified_name());
  if (is_new) row->second = look_up(node);
  return row->second ? &*row->second : nullptr;
}

}  // namespace exportguard::lowering
