#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace exportguard::serialization {

/// An operand or result in the definition of an ONNX operator.
struct SchemaParameter {
  enum class Count : std::uint8_t { kOne, kOptional, kMany };

  std::string name;
  std::string type;                ///< name of the type variable (`T`), or a type
  std::vector<std::string> types;  ///< that it may have, as ONNX writes them: `tensor(float)`, `seq(tensor(int64))`
  Count count = Count::kOne;
};

struct SchemaAttribute {
  std::string name;
  std::string kind;  ///< `int`, `float`, `string`, `tensor`, `graph`, `type_proto`; `ints`, … for lists
  bool is_required = false;
};

/// The definition of an operator in one version of its domain.
struct OperatorSchema {
  std::string domain;
  std::string name;
  int since = 0;  ///< the version that introduced this definition
  std::vector<SchemaParameter> inputs;
  std::vector<SchemaParameter> outputs;
  std::vector<SchemaAttribute> attributes;
  int least_inputs = 0;
  int least_outputs = 0;
};

/// The definition in force in that version of the domain (`""` is ONNX's own); nothing if there is none, or a
/// deprecated one.
std::optional<OperatorSchema> find_schema(std::string_view domain, std::string_view op, int version);

/// Operators that have a definition in that version of the domain; sorted.
std::vector<std::string> operator_names(std::string_view domain, int version);

}  // namespace exportguard::serialization
