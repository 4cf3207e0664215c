#include "importer/writes.h"

#include <ATen/core/Tensor.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "exportguard/common/errors.h"
#include "exportguard/common/torch_dtypes.h"
#include "operators/schemas.h"

namespace exportguard::importer {
namespace {

using ir::Argument;
using ir::Value;

// ------------------------------------------------------------------------------------------------ dtypes

/// Operators whose result has the dtype of all operands together, though their in-place form keeps that of the tensor.
bool promotes(std::string_view base) {
  static const std::set<std::string_view> names = {
      "add",       "addcdiv",   "addcmul",   "atan2", "bitwise_and", "bitwise_or",  "bitwise_xor",  "clamp",
      "clamp_max", "clamp_min", "copysign",  "div",   "divide",      "float_power", "floor_divide", "fmax",
      "fmin",      "fmod",      "hypot",     "lerp",  "logaddexp",   "maximum",     "minimum",      "mul",
      "multiply",  "pow",       "remainder", "sub",   "subtract",    "true_divide", "xlogy"};
  return names.contains(base);
}

bool gives_bool(std::string_view base) {
  static const std::set<std::string_view> names = {
      "eq",         "equal",       "ge",          "greater",    "greater_equal", "gt", "le", "less",
      "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor",   "lt", "ne", "not_equal"};
  return names.contains(base);
}

at::Tensor stand_in(const ir::Type& type) {
  const std::vector<std::int64_t> shape(type.rank().value_or(1), 1);
  return at::empty(shape, at::TensorOptions().dtype(to_scalar_type(type.dtype)).device(at::kMeta));
}

/// Takes part in torch's promotion as a number does.
std::optional<at::Scalar> number_of(const ir::Node& node, const Argument& argument) {
  if (const auto* number = argument.get_if<double>()) return at::Scalar(*number);
  if (const auto* number = argument.get_if<std::int64_t>()) return at::Scalar(*number);
  if (const auto* flag = argument.get_if<bool>()) return at::Scalar(*flag);
  const auto* operand = argument.get_if<Argument::Operand>();
  const Value* value = operand ? node.find_input(operand->index) : nullptr;
  if (value == nullptr || !value->type().is_scalar) return std::nullopt;
  return value->dtype() == DType::kInt64 ? at::Scalar(1) : at::Scalar(1.0);
}

/// What torch would compute with: the first two arguments and every further tensor count, but for those of `out=`.
DType promoted_dtype(const ir::Node& node, const operators::OperatorFacts& facts) {
  at::native::ResultTypeState state;
  for (std::size_t i = 0; i < node.arguments().size(); ++i) {
    if (std::ranges::find(facts.dropped, i) != facts.dropped.end()) continue;
    const Value* value = find_operand(node, i);
    if (value != nullptr && !value->type().is_scalar) {
      state = at::native::update_result_type_state(stand_in(value->type()), state);
    } else if (i == 1) {
      if (const auto number = number_of(node, node.arguments()[i])) {
        state = at::native::update_result_type_state(*number, state);
      }
    }
  }
  return from_scalar_type(at::native::result_type(state));
}

/// The dtype of what the functional form of `node` gives, whose in-place form keeps `kept`.
DType functional_dtype(const ir::Node& node, const operators::OperatorFacts& facts, DType kept) {
  const std::string_view base = operators::base_name(facts.functional->op);
  if (node.domain() != "aten") return kept;
  if (gives_bool(base)) return DType::kBool;
  return promotes(base) ? promoted_dtype(node, facts) : kept;
}

Value& converted(Value& value, DType dtype, const TorchCall& call) {
  if (value.dtype() == dtype || dtype == DType::kUndefined) return value;
  ir::Type type = value.type();
  type.dtype = dtype;
  return call.aten("to.dtype", {value, dtype}, std::move(type));
}

// ------------------------------------------------------------------------------------------------ special operators

using Special = Value& (*)(ir::Node&, const TorchCall&);

Value& self_of(const ir::Node& node) { return node.input(0); }

/// The elements of the source, as a value that stands for the tensor that is written; the source stands for another
/// one, which later writes to this one leave alone.
Value& copy_into(ir::Node& node, const TorchCall& call) {
  Value& source = *find_operand(node, 1);
  Value& copied = fitted(source, self_of(node), call);
  return &copied == &source ? call.aten("clone.default", {source}, source.type()) : copied;
}

Value& fill_with_number(ir::Node& node, const TorchCall& call) {
  return call.aten("full_like.default", {self_of(node), CallArgument::of(node, 1)}, self_of(node).type());
}

Value& zeros(ir::Node& node, const TorchCall& call) {
  return call.aten("zeros_like.default", {self_of(node)}, self_of(node).type());
}

/// The size of the diagonal of a tensor of that shape, if both sizes are known or equal.
std::optional<ir::Dim> diagonal_size(const ir::Type& type) {
  if (type.rank() != 2) return std::nullopt;
  const ir::Dim& rows = (*type.shape)[0];
  const ir::Dim& columns = (*type.shape)[1];
  return min(rows, columns);
}

Value& fill_diagonal(ir::Node& node, const TorchCall& call) {
  Value& self = self_of(node);
  const auto size = diagonal_size(self.type());
  if (!size || (node.arguments().size() > 2 && *node.arguments()[2].get_if<bool>())) {
    throw ImportError(fmt::format("cannot make {} functional: it must fill a matrix without wrapping", place_of(node)));
  }
  Value& diagonal = call.aten("diagonal.default", {self}, ir::Type::tensor(self.dtype(), ir::Shape{*size}));
  Value& filled = call.aten("full_like.default", {diagonal, CallArgument::of(node, 1)}, diagonal.type());
  return call.aten("diagonal_scatter.default", {self, filled}, self.type());
}

Value& keep_size(ir::Node& node, const TorchCall&) {
  if (node.output().type().shape != self_of(node).type().shape) {
    throw ImportError(
        fmt::format("cannot make {} functional: it changes the size of a tensor from {} to {}; "
                    "make a new tensor instead",
                    place_of(node), self_of(node).type().str(), node.output().type().str()));
  }
  return self_of(node);
}

Special find_special(const ir::Node& node) {
  static const std::map<std::string_view, Special> rules = {
      {"copy_.default", copy_into},
      {"fill_.Tensor", copy_into},
      {"fill_.Scalar", fill_with_number},
      {"zero_.default", zeros},
      {"fill_diagonal_.default", fill_diagonal},
      {"resize_.default", keep_size},
      {"resize_as_.default", keep_size},
  };
  if (node.domain() != "aten") return nullptr;
  const auto found = rules.find(node.op());
  return found == rules.end() ? nullptr : found->second;
}

// ------------------------------------------------------------------------------------------------ the general rule

std::vector<CallArgument> arguments_without(const ir::Node& node, const std::vector<std::size_t>& dropped,
                                            std::size_t most) {
  std::vector<CallArgument> arguments;
  for (std::size_t i = 0; i < node.arguments().size() && arguments.size() < most; ++i) {
    if (std::ranges::find(dropped, i) == dropped.end()) arguments.push_back(CallArgument::of(node, i));
  }
  return arguments;
}

/// Types of what the functional form gives for the tensors that are written.
std::vector<ir::Type> written_types(const ir::Node& node, const operators::OperatorFacts& facts) {
  std::vector<ir::Type> types;
  for (const std::size_t position : facts.written) {
    for (const Value* value : operands(node, position)) types.push_back(value->type());
  }
  const bool has_result = !facts.returns.empty() && facts.returns.front();
  if (types.size() == 1 && has_result) types.front() = node.output().type();  // `out=` may have had another shape
  if (types.size() == 1) types.front().dtype = functional_dtype(node, facts, types.front().dtype);
  return types;
}

WriteResults general_form(ir::Node& node, const operators::OperatorFacts& facts, const TorchCall& call) {
  const operators::Counterpart& functional = *facts.functional;
  std::vector<ir::Type> types;
  std::vector<ir::Type> written = written_types(node, facts);
  for (std::size_t i = 0; i < facts.returns.size(); ++i) {
    if (!facts.returns[i]) types.push_back(node.output(i).type());
  }
  const std::size_t fresh = types.size();
  types.insert(types.end(), written.begin(), written.end());
  ir::Node& made = call.node(node.domain(), functional.op, arguments_without(node, facts.dropped, functional.arguments),
                             std::move(types));
  WriteResults results;
  for (std::size_t i = 0, next = 0; i < facts.returns.size(); ++i) {
    results.fresh.push_back(facts.returns[i] ? nullptr : &made.output(next++));
  }
  for (std::size_t i = fresh; i < made.output_count(); ++i) results.written.push_back(&made.output(i));
  return results;
}

/// A custom operator is left to its lowering, which gives the written tensors behind the results.
WriteResults with_extra_outputs(ir::Node& node, const operators::OperatorFacts& facts, const TorchCall& call) {
  std::vector<CallArgument> arguments;
  for (std::size_t i = 0; i < node.arguments().size(); ++i) arguments.push_back(CallArgument::of(node, i));
  std::vector<ir::Type> types;
  for (std::size_t i = 0; i < facts.returns.size(); ++i) {
    if (!facts.returns[i]) types.push_back(node.output(i).type());
  }
  operators::OperatorFacts same = facts;
  same.functional = operators::Counterpart{node.op(), arguments.size(), types.size()};
  same.dropped.clear();
  return general_form(node, same, call);
}

}  // namespace

Value& fitted(Value& value, Value& like, const TorchCall& call) {
  Value& same_dtype = converted(value, like.dtype(), call);
  if (value.type().shape && value.type().shape == like.type().shape) return same_dtype;
  return call.aten("expand_as.default", {same_dtype, like}, like.type());
}

WriteResults functional_form(ir::Node& node, const operators::OperatorFacts& facts) {
  const TorchCall call(node);
  WriteResults results;
  if (const Special special = find_special(node)) {
    results.written.push_back(&special(node, call));
    results.fresh.assign(node.output_count(), nullptr);
  } else if (facts.functional) {
    results = general_form(node, facts, call);
  } else if (node.domain() == "aten") {
    throw ImportError(
        fmt::format("cannot make {} functional: torch has no form of it that writes nothing; "
                    "write the result into a new tensor instead",
                    place_of(node)));
  } else {
    results = with_extra_outputs(node, facts, call);
  }

  std::size_t next = 0;
  for (const std::size_t position : facts.written) {
    for (const Value* value : operands(node, position)) {
      results.written[next] = &converted(*results.written[next], value->dtype(), call);
      ++next;
    }
  }
  return results;
}

}  // namespace exportguard::importer
