#include "exportguard/lowering/target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

#include "exportguard/common/errors.h"
#include "lowering/target_facts.h"

namespace exportguard::lowering {
namespace {

constexpr std::size_t kCount = 3;

/// The facts of every target, in the order of `Target`.
std::array<const TargetFacts*, kCount> all_facts() {
  return {&onnx_facts(), &onnxruntime_cpu_facts(), &onnxruntime_cuda_facts()};
}

using Kernels = std::unordered_map<std::string_view, DTypes>;

/// Adds the rows to what an earlier table says of the same operators.
void add(Kernels& kernels, std::span<const KernelRow> rows) {
  for (const KernelRow& row : rows) {
    for (std::string_view rest = row.ops; !rest.empty();) {
      const std::string_view op = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(op.size() + 1, rest.size()));
      DTypes& known = kernels[op];
      known = known | row.dtypes;
    }
  }
}

/// The kernels of a target and of those that run what it does not. An operator that only it has rows for runs in every
/// dtype elsewhere.
Kernels kernels_of(const TargetFacts& target) {
  if (target.others == nullptr) {
    Kernels own;
    add(own, target.kernels);
    return own;
  }
  Kernels shared = kernels_of(*target.others);
  Kernels own;
  add(own, target.kernels);
  for (auto& [op, dtypes] : shared) {
    if (const auto row = own.find(op); row != own.end()) dtypes = dtypes | row->second;
  }
  return shared;
}

const Kernels& table_of(Target target) {
  static const std::array<Kernels, kCount> tables = [] {
    std::array<Kernels, kCount> made;
    std::ranges::transform(all_facts(), made.begin(),
                           [](const TargetFacts* provider) { return kernels_of(*provider); });
    return made;
  }();
  return tables.at(static_cast<std::size_t>(target));
}

}  // namespace

const TargetFacts& facts(Target target) { return *all_facts().at(static_cast<std::size_t>(target)); }

std::string_view name(Target target) { return facts(target).name; }

Target target(std::string_view text) {
  std::array<std::string_view, kCount> names;
  std::ranges::transform(all_facts(), names.begin(), &TargetFacts::name);
  const auto found = std::ranges::find(names, text);
  if (found == names.end())
    throw InvalidArgument(fmt::format("target must be one of {}, got {}", fmt::join(names, ", "), text));
  return static_cast<Target>(found - names.begin());
}

std::map<std::string, std::vector<DType>> kernels(Target target) {
  std::map<std::string, std::vector<DType>> rows;
  for (const auto& [op, dtypes] : table_of(target)) {
    std::vector<DType>& row = rows[std::string(op)];
    for (int code = 0; code <= static_cast<int>(DType::kUint4); ++code)
      if (dtypes.has(static_cast<DType>(code))) row.push_back(static_cast<DType>(code));
  }
  return rows;
}

bool departs(Target target, Departure departure) {
  const std::span<const Departure> known = facts(target).departures;
  return std::ranges::find(known, departure) != known.end();
}

bool carries_bfloat16(const TargetFacts& target, std::string_view op) {
  for (std::string_view rest = target.bfloat16; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find(' '));
    if (name == op) return true;
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
  }
  return false;
}

bool has_kernel(Target target, std::string_view op, DType dtype) {
  if (facts(target).runs_all) return true;
  const Kernels& known = table_of(target);
  const auto row = known.find(op);
  return row == known.end() || row->second.has(dtype);
}

}  // namespace exportguard::lowering
