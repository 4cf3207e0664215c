#include "exportguard/guard/report.h"

#include <fmt/format.h>

#include <algorithm>

namespace exportguard::guard {

const ReportLine* Report::find(std::string_view name) const noexcept {
  const auto it = std::ranges::find_if(lines, [&](const ReportLine& line) { return line.name == name; });
  return it == lines.end() ? nullptr : &*it;
}

void Report::amend(std::string_view name, const Told& told) {
  const auto it = std::ranges::find_if(lines, [&](const ReportLine& line) { return line.name == name; });
  if (it == lines.end()) return;
  it->outcome = told.outcome;
  if (!told.targets.empty()) it->targets = told.targets;
  if (!told.reason.empty()) it->reason = told.reason;
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
