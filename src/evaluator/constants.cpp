#include "evaluator/constants.h"

#include <fmt/format.h>

#include "exportguard/evaluator/evaluator.h"

namespace exportguard::evaluator {
namespace {

ir::Tensor floats(const std::vector<double>& values) {
  const auto owner = std::make_shared<const std::vector<float>>(values.begin(), values.end());
  return ir::Tensor::from_memory(DType::kFloat32, {static_cast<std::int64_t>(owner->size())},
                                 std::as_bytes(std::span(*owner)), owner);
}

std::optional<ir::Tensor> value_of(const std::string& name, const ir::Attribute& value) {
  if (name == "value" || name == "sparse_value") return std::get<ir::Tensor>(value);
  if (name == "value_int") return ir::Tensor::scalar(std::get<std::int64_t>(value), DType::kInt64);
  if (name == "value_float") return ir::Tensor::scalar(std::get<double>(value), DType::kFloat32);
  if (name == "value_ints") return ir::Tensor::ints(std::get<std::vector<std::int64_t>>(value));
  if (name == "value_floats") return floats(std::get<std::vector<double>>(value));
  if (name == "value_string") return ir::Tensor::strings({std::get<std::string>(value)}, {});
  if (name == "value_strings") return ir::Tensor::strings(std::get<std::vector<std::string>>(value));
  return std::nullopt;
}

}  // namespace

Datum constant_of(const ir::Node& node, StringPool& strings, const c10::Device& device) {
  for (const auto& [name, value] : node.attributes()) {
    try {
      if (const auto found = value_of(name, value)) return to_datum(*found, strings, device);
    } catch (const std::bad_variant_access&) {
      throw EvaluationError(
          fmt::format("attribute '{}' of a Constant node is of another type than its name says", name));
    }
  }
  throw EvaluationError("a Constant node has no value");
}

}  // namespace exportguard::evaluator
