#include "python/fx_operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <exportguard/common/errors.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "operators/facts.h"
#include "operators/schemas.h"
#include "python/fx_objects.h"

namespace exportguard::python {
namespace {

using ir::Argument;

std::string text_attribute(py::handle object, const char* name) {
  const py::object value = py::getattr(object, name, py::none());
  return PyUnicode_Check(value.ptr()) ? value.cast<std::string>() : std::string();
}

/// A body is named after the parameter that it is passed as; those that only wrap one call theirs differently.
std::string parameter_name(std::string name) {
  static const std::set<std::string_view> bodies = {"func", "gmod", "subgraph", "wrapped_func"};
  if (bodies.contains(name)) return "body";
  return name == "block_mask" ? "mask_mod" : name;
}

/// Positional parameters of a higher-order operator, without `self`.
std::vector<std::string> parameters_of(py::handle target) {
  const py::module_ inspect = py::module_::import("inspect");
  const py::object parameters = inspect.attr("signature")(py::type::of(target).attr("__call__")).attr("parameters");
  const py::object variadic = inspect.attr("Parameter").attr("VAR_POSITIONAL");
  std::vector<std::string> names;
  for (const py::handle parameter : py::list(parameters.attr("values")())) {
    if (py::object(parameter.attr("kind")).equal(variadic)) break;
    names.push_back(parameter_name(text_attribute(parameter, "name")));
  }
  if (!names.empty()) names.erase(names.begin());
  return names;
}

FxOperator of_schema(py::handle target) {
  FxOperator result;
  result.kind = FxOperator::Kind::kSchema;
  result.target = py::str(target).cast<std::string>();
  const std::size_t dot = result.target.find('.');
  result.domain = result.target.substr(0, dot);
  result.op = result.target.substr(dot + 1);
  const auto handle = operators::find_operator(result.domain, result.op);
  if (!handle)
    throw ImportError(fmt::format("torch does not know the operator {}; import what registers it", result.target));
  result.schema = &handle->schema();
  result.writes = operators::writes(*result.schema);
  result.may_copy = result.domain == "aten" && operators::is_composed(*handle) && !result.writes;
  result.is_view = operators::facts_of(result.domain, result.op).effect == operators::Effect::kView;
  if (result.target == "exportguard_repeats.block.default") result.kind = FxOperator::Kind::kMarker;
  return result;
}

FxOperator of_higher_order(py::handle target) {
  FxOperator result;
  result.kind = FxOperator::Kind::kHigherOrder;
  result.domain = text_attribute(target, "namespace");
  result.op = py::str(target.attr("name")()).cast<std::string>();
  result.parameters = parameters_of(target);
  result.target = result.domain + "." + result.op;
  return result;
}

/// Python's own functions go by their module without its leading underscore: `operator.add`, `math.ceil`.
FxOperator of_function(py::handle target) {
  FxOperator result;
  result.domain = text_attribute(target, "__module__");
  result.op = text_attribute(target, "__name__");
  if (result.domain.starts_with('_')) result.domain.erase(0, 1);
  if (result.domain.empty() || result.op.empty()) {
    throw ImportError(
        fmt::format("the graph calls {}, which is not an operator", py::repr(target).cast<std::string>()));
  }
  result.target = result.domain + "." + result.op;
  if (result.target == "operator.getitem") result.kind = FxOperator::Kind::kGetItem;
  return result;
}

FxOperator look_up(py::handle target) {
  const FxClasses& classes = FxClasses::get();
  if (py::isinstance(target, classes.op_overload)) return of_schema(target);
  if (py::isinstance(target, classes.higher_order_operator)) return of_higher_order(target);
  return of_function(target);
}

}  // namespace

std::optional<std::size_t> FxOperator::position_of(std::string_view keyword) const {
  if (schema != nullptr) {
    const auto position = schema->argumentIndexWithName(keyword);
    return position ? std::optional(static_cast<std::size_t>(*position)) : std::nullopt;
  }
  const auto found = std::ranges::find(parameters, keyword);
  return found == parameters.end() ? std::nullopt : std::optional<std::size_t>(found - parameters.begin());
}

std::optional<Argument> FxOperator::default_of(std::size_t position) const {
  if (schema == nullptr) return Argument{};
  const c10::Argument& argument = schema->arguments().at(position);
  return operators::find_default(argument);
}

const FxOperator& FxOperators::of(py::handle target) {
  if (const auto found = operators_.find(target.ptr()); found != operators_.end()) return found->second;
  kept_.push_back(py::reinterpret_borrow<py::object>(target));
  return operators_.emplace(target.ptr(), look_up(target)).first->second;
}

}  // namespace exportguard::python
