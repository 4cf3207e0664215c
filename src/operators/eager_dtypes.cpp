// Calls operators of torch with few numbers to see which dtypes they take, as torch 2.11 to 2.13 have them.
#include "operators/eager_dtypes.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "exportguard/common/errors.h"
#include "exportguard/common/torch_dtypes.h"
#include "operators/boxed_arguments.h"
#include "operators/schemas.h"

namespace exportguard::operators {
namespace {

using ir::Argument;

constexpr std::int64_t kLargest = 8;  // sizes and whole numbers: five axes are no more than 32,768 elements
constexpr std::int64_t kSymbol = 4;   // what every symbol is,
constexpr std::int64_t kFar = 4096;   // and in sizes that would be negative then: what a convolution leaves of it

/// Tells nothing of the dtypes: the call cannot be made.
struct Unknown {};

/// The dtype of operand `index` of a call, in place of the one that it has.
using Substitute = std::function<DType(std::size_t index, DType dtype)>;

DType as_it_is(std::size_t, DType dtype) { return dtype; }
DType all_float(std::size_t, DType) { return DType::kFloat32; }
DType all_whole(std::size_t, DType) { return DType::kInt64; }
DType all_float_but_indices(std::size_t, DType dtype) { return dtype == DType::kInt64 ? dtype : DType::kFloat32; }
DType floats_as_float(std::size_t, DType dtype) { return is_floating(dtype) ? DType::kFloat32 : dtype; }

/// The tensors of a call.
struct Numbers {
  Substitute dtype;
  std::int64_t fill;         ///< every element: no divisor is 0, or no index is out of bounds
  bool has_its_own = false;  ///< the numbers beside them are those of the node, and not small
};

std::optional<std::int64_t> evaluated(const SymExpr& size, std::int64_t symbol) {
  std::map<std::string, std::int64_t> values;
  for (const std::string& name : size.symbols()) values[name] = symbol;
  return size.evaluate(values);
}

std::int64_t small(const SymExpr& size) {
  std::optional<std::int64_t> value = evaluated(size, kSymbol);
  if (value && *value < 0) value = evaluated(size, kFar);
  if (!value) throw Unknown{};
  return std::min(*value, kLargest);
}

Argument small(const Argument& argument) {
  if (const auto* number = argument.get_if<std::int64_t>()) return {std::min(*number, kLargest)};
  const auto* list = argument.get_if<Argument::List>();
  if (list == nullptr) return argument;
  Argument::List items;
  for (const Argument& item : *list) items.push_back(small(item));
  return {std::move(items)};
}

at::Tensor filled(const ir::Type& type, std::size_t index, const Numbers& numbers) {
  if (!type.shape || type.kind != ir::Type::Kind::kTensor) throw Unknown{};
  std::vector<std::int64_t> sizes;
  for (const SymExpr& size : *type.shape) sizes.push_back(small(size));
  if (std::ranges::any_of(sizes, [](std::int64_t size) { return size < 0; })) throw Unknown{};
  const c10::ScalarType dtype = to_scalar_type(numbers.dtype(index, type.dtype));
  return at::full(sizes, numbers.fill, at::TensorOptions(at::kCPU).dtype(dtype));
}

c10::IValue operand_of(const ir::Node& node, std::size_t index, const c10::TypePtr& type, const Numbers& numbers) {
  const ir::Value* value = node.find_input(index);
  if (value == nullptr) return {};
  const ir::Type& given = value->type();
  if (!given.is_scalar) return filled(given, index, numbers);
  const std::int64_t whole = given.value ? small(*given.value) : 1;
  return boxed_number(is_floating(given.dtype) ? at::Scalar(static_cast<double>(whole)) : at::Scalar(whole), type);
}

/// What torch warns of is not about the user's call.
class Silence : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// Whether an argument is a number of no dtype, torch's `Scalar` or a float, rather than a size or an axis.
bool is_number(const c10::OperatorHandle& op, std::size_t index) {
  const auto& declared = op.schema().arguments();
  if (index >= declared.size()) return false;
  const c10::TypePtr& type = declared[index].type();
  const auto* optional = type->castRaw<c10::OptionalType>();
  const c10::TypeKind kind = (optional == nullptr ? type : optional->getElementType())->kind();
  return kind == c10::TypeKind::NumberType || kind == c10::TypeKind::FloatType;
}

/// A number that lies beyond what every dtype holds.
std::optional<double> large(const Argument& argument) {
  std::optional<double> number;
  if (const auto* whole = argument.get_if<std::int64_t>()) number = static_cast<double>(*whole);
  if (const auto* real = argument.get_if<double>()) number = *real;
  return number && (*number < 0 || *number > kLargest) ? number : std::nullopt;
}

/// What stops the call; nothing if it runs.
std::optional<std::string> stopped(const ir::Node& node, const c10::OperatorHandle& op, const Numbers& numbers) {
  const auto operand = [&](std::size_t index, const c10::TypePtr& type) {
    return operand_of(node, index, type, numbers);
  };
  const auto fail = [](const std::string&) { throw Unknown{}; };
  std::vector<Argument> arguments;
  for (std::size_t i = 0; i < node.arguments().size(); ++i) {
    const Argument& argument = node.arguments()[i];
    const bool is_too_large = is_number(op, i) && large(argument) && !numbers.has_its_own;
    const bool stays = is_number(op, i) && !is_too_large;
    arguments.push_back(is_too_large ? Argument{std::int64_t{1}} : stays ? argument : small(argument));
  }

  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard unheard(&silence);
  const at::NoGradGuard without_gradients;
  torch::jit::Stack stack = boxed_arguments(arguments, op.schema(), {operand, c10::Device(at::kCPU), fail});
  try {
    op.callBoxed(stack);
    return std::nullopt;
  } catch (const c10::Error& error) {
    return first_line(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return first_line(error.what());
  }
}

/// Operators of torch's own that compute from their operands alone; those of others, and private ones, whose packed
/// operands have layouts of their own, are not called with numbers that nobody made for them.
bool can_be_called(const ir::Node& node, const c10::OperatorHandle& op) {
  return node.domain() == "aten" && !node.op().starts_with('_') && !writes(op.schema()) &&
         !op.hasTag(at::Tag::nondeterministic_seeded);
}

std::vector<DType> tensor_dtypes(const ir::Node& node) {
  std::vector<DType> dtypes;
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    const ir::Value* value = node.find_input(i);
    if (value != nullptr && !value->type().is_scalar) dtypes.push_back(value->type().dtype);
  }
  return dtypes;
}

bool is_stored_alone(DType dtype) { return bit_width(dtype) <= 8 && is_floating(dtype); }

bool has_one_float(const std::vector<DType>& dtypes) {
  DType one = DType::kUndefined;
  for (const DType dtype : dtypes) {
    if (!is_floating(dtype)) continue;
    if (one != DType::kUndefined && one != dtype) return false;
    one = dtype;
  }
  return true;
}

void append_key(std::string& key, const ir::Node& node, const Argument& argument) {
  if (const auto* list = argument.get_if<Argument::List>()) {
    key += '[';
    for (const Argument& item : *list) append_key(key, node, item);
    key += ']';
  } else if (const auto* operand = argument.get_if<Argument::Operand>()) {
    const ir::Value* value = node.find_input(operand->index);
    key += value == nullptr ? "-" : name(value->type().dtype);
    if (value != nullptr && value->type().is_scalar) key += '\'';
  } else if (const auto* dtype = argument.get_if<DType>()) {
    key += name(*dtype);
  } else {
    key += argument.is_none() ? "-" : "#";
  }
  key += ',';
}

/// The numbers of a call that are not small, as text.
std::string large_numbers(const ir::Node& node, const c10::OperatorHandle& op) {
  std::string found;
  for (std::size_t i = 0; i < node.arguments().size(); ++i) {
    const Argument& argument = node.arguments()[i];
    const std::optional<double> number = is_number(op, i) ? large(argument) : std::nullopt;
    if (number) found += fmt::format("{}={},", i, *number);
  }
  return found;
}

std::string key_of(const ir::Node& node) {
  std::string key = node.qualified_name() + ':';
  for (const Argument& argument : node.arguments()) append_key(key, node, argument);
  return key;
}

bool are_indices(const c10::TypePtr& type) {
  const auto* list = type->castRaw<c10::ListType>();
  return list != nullptr && list->getElementType()->kind() == c10::TypeKind::OptionalType;
}

/// Operands that choose elements by being true, in torch's `Tensor?[] indices`. How many they choose is data, so that a
/// call may stop at its sizes alone; as indices of another dtype they would choose as many as they have elements.
std::set<std::size_t> masks(const ir::Node& node, const c10::OperatorHandle& op) {
  std::set<std::size_t> found;
  const auto& declared = op.schema().arguments();
  for (std::size_t i = 0; i < std::min(declared.size(), node.arguments().size()); ++i) {
    const auto* list = node.arguments()[i].get_if<Argument::List>();
    if (list == nullptr || !are_indices(declared[i].type())) continue;
    for (const Argument& item : *list) {
      const auto* operand = item.get_if<Argument::Operand>();
      const ir::Value* value = operand == nullptr ? nullptr : node.find_input(operand->index);
      const DType dtype = value == nullptr ? DType::kUndefined : value->type().dtype;
      if (dtype == DType::kBool || dtype == DType::kUint8) found.insert(operand->index);
    }
  }
  return found;
}

/// Nothing if the call runs with ones or with zeros.
std::optional<std::string> stopped(const ir::Node& node, const c10::OperatorHandle& op, const Substitute& dtype) {
  std::optional<std::string> told = stopped(node, op, {dtype, 1});
  return told && stopped(node, op, {dtype, 0}) ? told : std::nullopt;
}

/// Whether the call runs with other dtypes: all of them float32, or int64, or float32 but for indices, or one of them
/// float32; masks stay masks.
bool runs_otherwise(const ir::Node& node, const c10::OperatorHandle& op, const Substitute& given) {
  const std::set<std::size_t> kept = masks(node, op);
  for (const auto& every : {all_float, all_whole, all_float_but_indices}) {
    const Substitute other = [&](std::size_t i, DType dtype) { return kept.contains(i) ? dtype : every(i, dtype); };
    if (!stopped(node, op, other)) return true;
  }
  for (std::size_t one = 0; one < node.input_count(); ++one) {
    if (kept.contains(one)) continue;
    const Substitute but_one = [&](std::size_t i, DType dtype) { return i == one ? DType::kFloat32 : given(i, dtype); };
    if (!stopped(node, op, but_one)) return true;
  }
  return false;
}

std::optional<std::string> asked(const ir::Node& node, const c10::OperatorHandle& op) {
  const Substitute given = has_one_float(tensor_dtypes(node)) ? floats_as_float : as_it_is;
  const std::optional<std::string> told = stopped(node, op, given);
  return told && runs_otherwise(node, op, given) ? told : std::nullopt;
}

std::optional<std::string> asked_of_numbers(const ir::Node& node, const c10::OperatorHandle& op) {
  if (stopped(node, op, {as_it_is, 1})) return std::nullopt;
  return stopped(node, op, {as_it_is, 1, /*has_its_own=*/true});
}

using Refusals = std::unordered_map<std::string, std::optional<std::string>>;

std::optional<std::string> remembered(Refusals& refusals, const std::string& key,
                                      const std::function<std::optional<std::string>()>& question) {
  const auto [found, is_new] = refusals.try_emplace(key);
  if (!is_new) return found->second;
  try {
    found->second = question();
  } catch (const Unknown&) {
    return std::nullopt;
  } catch (const Error&) {  // a dtype that torch has not
    return std::nullopt;
  }
  return found->second;
}

}  // namespace

std::optional<std::string> EagerDtypes::refusal_of(const ir::Node& node) {
  const std::vector<DType> dtypes = tensor_dtypes(node);
  if (dtypes.empty() || std::ranges::any_of(dtypes, is_stored_alone)) return std::nullopt;
  const std::optional<c10::OperatorHandle> op = find_operator(node.domain(), node.op());
  if (!op || !can_be_called(node, *op)) return std::nullopt;
  const std::string key = key_of(node);
  const auto told = remembered(refusals_, key, [&] { return asked(node, *op); });
  const std::string numbers = told ? "" : large_numbers(node, *op);
  if (numbers.empty()) return told;
  return remembered(refusals_, key + numbers, [&] { return asked_of_numbers(node, *op); });
}

std::string operand_dtypes(const ir::Node& node) {
  std::vector<std::string_view> names;
  for (const DType dtype : tensor_dtypes(node)) {
    if (std::ranges::find(names, name(dtype)) == names.end()) names.push_back(name(dtype));
  }
  return fmt::format("{}", fmt::join(names, " and "));
}

}  // namespace exportguard::operators
