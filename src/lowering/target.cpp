#include "exportguard/lowering/target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "exportguard/common/errors.h"

namespace exportguard::lowering {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"onnx", "onnxruntime-cpu", "onnxruntime-cuda"};

}  // namespace

std::string_view name(Target target) { return kNames.at(static_cast<std::size_t>(target)); }

Target target(std::string_view text) {
  const auto found = std::ranges::find(kNames, text);
  if (found == kNames.end())
    throw InvalidArgument(fmt::format("target must be one of {}, got {}", fmt::join(kNames, ", "), text));
  return static_cast<Target>(found - kNames.begin());
}

}  // namespace exportguard::lowering
