#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "exportguard/ir/graph.h"

namespace exportguard::lowering {

/// Names and defaults of an operator's arguments, as torch's dispatcher has them.
struct Schema {
  struct Parameter {
    std::string name;
    std::optional<ir::Argument> default_value;
  };
  std::vector<Parameter> parameters;
};

/// Schemas by node, looked up once for each operator.
class SchemaCache {
 public:
  /// Null for an operator that the dispatcher does not know: Python's arithmetic, higher-order operators.
  const Schema* find(const ir::Node& node);

 private:
  std::unordered_map<std::string, std::optional<Schema>> schemas_;
};

}  // namespace exportguard::lowering
