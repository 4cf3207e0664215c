#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "exportguard/ir/graph.h"

namespace c10 {
struct Argument;
struct FunctionSchema;
class OperatorHandle;
}  // namespace c10

/// What torch's dispatcher says of its operators: the one place that asks it. A node's domain is `aten`, its operator
/// `add_.Tensor`, `add_.default` without an overload.
namespace exportguard::operators {

std::string_view base_name(std::string_view op);      ///< `add_` of `add_.Tensor`
std::string_view overload_name(std::string_view op);  ///< `Tensor` of `add_.Tensor`; empty for `default`

/// Nothing, or null, for what the dispatcher does not know: Python's arithmetic, higher-order operators.
std::optional<c10::OperatorHandle> find_operator(std::string_view domain, std::string_view op);
const c10::FunctionSchema* find_schema(std::string_view domain, std::string_view op);

/// What an argument that was left out is, its enums by name; nothing if it must be given, or is a tensor.
std::optional<ir::Argument> find_default(const c10::Argument& parameter);

bool is_written(const c10::Argument& argument);
bool writes(const c10::FunctionSchema& schema);

/// Whether torch makes it of other operators, so that its schema does not tell what it shares.
bool is_composed(const c10::OperatorHandle& handle);

}  // namespace exportguard::operators
