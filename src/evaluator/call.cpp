#include "evaluator/call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string>

#include "exportguard/common/torch_dtypes.h"
#include "exportguard/evaluator/evaluator.h"
#include "exportguard/ir/places.h"

namespace exportguard::evaluator {
namespace {

std::string place_of(const ir::Node& node) {
  std::string text = node.qualified_name();
  if (node.output_count() > 0 && !node.output().name().empty()) text += " %" + node.output().name();
  return ir::placed(text, node.source());
}

constexpr std::int64_t kSmall = std::int64_t{1} << 28;  // bytes: nobody asks the system about less
constexpr std::int64_t kElement = 4;                    // bytes, as most have

/// The number behind `key` in a file of the system's; nothing without.
std::optional<std::int64_t> number_in(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    std::int64_t number = 0;
    if (key.empty())
      return std::from_chars(word.data(), word.data() + word.size(), number).ec == std::errc() ? std::optional(number)
                                                                                               : std::nullopt;
    if (word == key && file >> number) return number;
  }
  return std::nullopt;
}

/// Bytes that a process may take without the system ending it: those that are free, and no more than a container has.
/// The system promises more than it has, so an allocation of too much does not fail.
std::int64_t memory_left() {
  std::int64_t bytes = ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGE_SIZE);
  if (const auto free = number_in("/proc/meminfo", "MemAvailable:")) bytes = std::min(bytes, *free * 1024);
  for (const char* limit : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    if (const auto most = number_in(limit, "")) bytes = std::min(bytes, *most);
  }
  return bytes;
}

}  // namespace

std::string describe(const Datum* datum) {
  if (datum == nullptr || datum->is_none()) return "nothing";
  if (datum->items != nullptr) return fmt::format("seq({})", datum->items->size());
  return fmt::format("{}[{}]", name(datum->dtype), fmt::join(datum->tensor.sizes(), ","));
}

void Call::fail(const std::string& reason) const {
  std::vector<std::string> given;
  for (const Datum* input : inputs_) given.push_back(describe(input));
  throw EvaluationError(
      fmt::format("cannot run {}: {}; its inputs are {}", place_of(node_), reason, fmt::join(given, ", ")), node_);
}

// ------------------------------------------------------------------------------------------------ inputs

const Datum& Call::datum(std::size_t i) const {
  if (i < inputs_.size() && inputs_[i] != nullptr) return *inputs_[i];
  fail(fmt::format("input {} is left out", i));
}

const at::Tensor& Call::input(std::size_t i) const {
  const Datum& found = datum(i);
  if (!found.is_tensor()) fail(fmt::format("input {} must be a tensor, got {}", i, describe(&found)));
  return found.tensor;
}

std::optional<at::Tensor> Call::find(std::size_t i) const {
  return has(i) ? std::optional<at::Tensor>(input(i)) : std::nullopt;
}

std::vector<std::int64_t> Call::ints(std::size_t i) const {
  const at::Tensor& tensor = input(i);
  if (!at::isIntegralType(tensor.scalar_type(), true)) fail(fmt::format("input {} must hold integers", i));
  const at::Tensor dense = tensor.to(at::kCPU, at::kLong).contiguous();
  const auto* first = dense.const_data_ptr<std::int64_t>();
  return {first, first + dense.numel()};
}

std::int64_t Call::integer(std::size_t i) const {
  const std::vector<std::int64_t> all = ints(i);
  if (all.size() != 1) fail(fmt::format("input {} must be one integer", i));
  return all.front();
}

double Call::number(std::size_t i) const {
  const at::Tensor& tensor = input(i);
  if (tensor.numel() != 1) fail(fmt::format("input {} must be one number", i));
  return tensor.to(at::kCPU, at::kDouble).item().toDouble();
}

const std::vector<Datum>& Call::sequence(std::size_t i) const {
  const Datum& found = datum(i);
  if (found.items == nullptr) fail(fmt::format("input {} must be a sequence, got {}", i, describe(&found)));
  return *found.items;
}

// ------------------------------------------------------------------------------------------------ attributes

template <typename T>
const T* Call::find_attribute(std::string_view name) const {
  const ir::Attribute* found = node_.find_attribute(name);
  if (found == nullptr) return nullptr;
  if (const T* value = std::get_if<T>(found)) return value;
  fail(fmt::format("attribute '{}' is of another type than the operator's", name));
}

std::int64_t Call::integer(std::string_view name, std::int64_t otherwise) const {
  return find_integer(name).value_or(otherwise);
}

std::int64_t Call::integer(std::string_view name) const {
  if (const auto found = find_integer(name)) return *found;
  fail(fmt::format("attribute '{}' is missing", name));
}

std::optional<std::int64_t> Call::find_integer(std::string_view name) const {
  const auto* found = find_attribute<std::int64_t>(name);
  return found != nullptr ? std::optional(*found) : std::nullopt;
}

double Call::number(std::string_view name, double otherwise) const {
  const auto* found = find_attribute<double>(name);
  return found != nullptr ? *found : otherwise;
}

std::string Call::text(std::string_view name, std::string_view otherwise) const {
  const auto* found = find_attribute<std::string>(name);
  return found != nullptr ? *found : std::string(otherwise);
}

std::vector<std::int64_t> Call::integers(std::string_view name, std::vector<std::int64_t> otherwise) const {
  return find_integers(name).value_or(std::move(otherwise));
}

std::optional<std::vector<std::int64_t>> Call::find_integers(std::string_view name) const {
  const auto* found = find_attribute<std::vector<std::int64_t>>(name);
  return found != nullptr ? std::optional(*found) : std::nullopt;
}

std::optional<std::vector<std::int64_t>> Call::find_integers(std::string_view name, std::size_t i) const {
  if (has(name)) return find_integers(name);
  return has(i) ? std::optional(ints(i)) : std::nullopt;
}

std::vector<double> Call::numbers(std::string_view name) const {
  const auto* found = find_attribute<std::vector<double>>(name);
  return found != nullptr ? *found : std::vector<double>();
}

std::vector<std::string> Call::texts(std::string_view name) const {
  const auto* found = find_attribute<std::vector<std::string>>(name);
  return found != nullptr ? *found : std::vector<std::string>();
}

// ------------------------------------------------------------------------------------------------ outputs and checks

void Call::result(at::Tensor tensor) {
  const DType dtype = from_scalar_type(tensor.scalar_type());
  result(std::move(tensor), dtype);
}

void Call::result(at::Tensor tensor, DType dtype) { outputs_.push_back(Datum::of(std::move(tensor), dtype)); }

std::int64_t Call::axis(std::int64_t axis, std::int64_t rank) const {
  if (axis >= -rank && axis < rank) return axis < 0 ? axis + rank : axis;
  fail(fmt::format("there is no axis {} in a tensor of rank {}", axis, rank));
}

std::vector<std::int64_t> Call::axes(std::vector<std::int64_t> axes, std::int64_t rank) const {
  for (std::int64_t& each : axes) each = axis(each, rank);
  return axes;
}

void Call::require_room(at::IntArrayRef sizes) const {
  std::int64_t bytes = kElement;
  for (const std::int64_t size : sizes) {
    if (size < 0) fail(fmt::format("a result cannot have sizes [{}]", fmt::join(sizes, ",")));
    if (size == 0) return;
  }
  for (const std::int64_t size : sizes) {
    const bool fits = !__builtin_mul_overflow(bytes, size, &bytes);
    if (!fits) fail(fmt::format("a result of sizes [{}] is more than this machine can hold", fmt::join(sizes, ",")));
  }
  if (bytes > kSmall && bytes > memory_left()) {
    fail(fmt::format("a result of sizes [{}] is more than this machine can hold", fmt::join(sizes, ",")));
  }
}

}  // namespace exportguard::evaluator
