#include "exportguard/guard/declaration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <span>

#include "exportguard/common/errors.h"

namespace exportguard::guard {
namespace {

constexpr std::array<std::string_view, 4> kOutcomeNames = {"installed", "skipped", "already installed", "waiting"};
constexpr std::array<std::string_view, 4> kFitNames = {"needed", "not needed", "does not fit", "target missing"};

std::size_t position(std::span<const std::string_view> names, std::string_view name, std::string_view what) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return i;
  throw InvalidArgument(fmt::format("{} must be one of {}, got '{}'", what, fmt::join(names, ", "), name));
}

}  // namespace

std::string_view name_of(Outcome outcome) noexcept { return kOutcomeNames[static_cast<std::size_t>(outcome)]; }
Outcome outcome(std::string_view name) { return static_cast<Outcome>(position(kOutcomeNames, name, "outcome")); }
std::string_view name_of(Fit fit) noexcept { return kFitNames[static_cast<std::size_t>(fit)]; }
Fit fit(std::string_view name) { return static_cast<Fit>(position(kFitNames, name, "verdict")); }

}  // namespace exportguard::guard
