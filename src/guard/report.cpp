#include "exportguard/guard/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace exportguard::guard {
namespace {

constexpr std::array<std::string_view, 3> kOutcomeNames = {"installed", "skipped", "already installed"};

}  // namespace

std::string_view name_of(Outcome outcome) noexcept { return kOutcomeNames[static_cast<std::size_t>(outcome)]; }

const ReportLine* Report::find(std::string_view name) const noexcept {
  const auto it = std::ranges::find_if(lines, [&](const ReportLine& line) { return line.name == name; });
  return it == lines.end() ? nullptr : &*it;
}

std::string Report::text() const {
  std::size_t width = 0;
  for (const ReportLine& line : lines) width = std::max(width, line.name.size());
  std::string text;
  for (const ReportLine& line : lines)
    text += fmt::format("{:<{}}  {:<12}  {:<17}  {}\n", line.name, width, name_of(line.kind), name_of(line.outcome),
                        line.reason);
  for (const std::string& failure : restore_failures) text += fmt::format("not restored: {}\n", failure);
  return text;
}

}  // namespace exportguard::guard
