// Definitions of operators, from onnx's own registry.
#include "exportguard/serialization/schemas.h"

#include <onnx/defs/schema.h>

#include <algorithm>

namespace exportguard::serialization {
namespace {

namespace pb = ONNX_NAMESPACE;

SchemaParameter parameter(const pb::OpSchema::FormalParameter& formal) {
  SchemaParameter result{formal.GetName(), formal.GetTypeStr(), {}, SchemaParameter::Count::kOne};
  for (const std::string* type : formal.GetTypes()) result.types.push_back(*type);
  std::ranges::sort(result.types);
  if (formal.GetOption() == pb::OpSchema::Optional) result.count = SchemaParameter::Count::kOptional;
  if (formal.GetOption() == pb::OpSchema::Variadic) result.count = SchemaParameter::Count::kMany;
  return result;
}

std::string kind_name(pb::AttributeProto::AttributeType type) {
  std::string name = pb::AttributeProto::AttributeType_Name(type);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

OperatorSchema described(const pb::OpSchema& schema) {
  OperatorSchema result;
  result.domain = schema.domain();
  result.name = schema.Name();
  result.since = schema.SinceVersion();
  for (const auto& input : schema.inputs()) result.inputs.push_back(parameter(input));
  for (const auto& output : schema.outputs()) result.outputs.push_back(parameter(output));
  for (const auto& [name, attribute] : schema.attributes()) {
    result.attributes.push_back({name, kind_name(attribute.type), attribute.required});
  }
  result.least_inputs = schema.min_input();
  result.least_outputs = schema.min_output();
  return result;
}

}  // namespace

std::optional<OperatorSchema> find_schema(std::string_view domain, std::string_view op, int version) {
  const pb::OpSchema* schema = pb::OpSchemaRegistry::Schema(std::string(op), version, std::string(domain));
  if (schema == nullptr || schema->Deprecated()) return std::nullopt;
  return described(*schema);
}

std::vector<std::string> operator_names(std::string_view domain, int version) {
  std::vector<std::string> names;
  for (const pb::OpSchema& schema : pb::OpSchemaRegistry::get_all_schemas()) {
    if (schema.domain() == domain && find_schema(domain, schema.Name(), version)) names.push_back(schema.Name());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace exportguard::serialization
