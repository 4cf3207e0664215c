#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "exportguard/guard/declaration.h"

namespace exportguard::guard {

struct ReportLine {
  std::string name;
  PatchKind kind = PatchKind::kCustom;
  std::vector<std::string> targets;
  Outcome outcome = Outcome::kSkipped;
  std::string reason;  ///< why it was installed or skipped
};

/// What a guard did, one line for each patch that it looked at, in the order it did.
struct Report {
  std::vector<ReportLine> lines;
  std::vector<std::string> restore_failures;  ///< filled when the guard ends

  /// Null if the guard did not look at such a patch.
  const ReportLine* find(std::string_view name) const noexcept;
  /// Writes what an install came to, now or later, into the line of the patch; one without a line is ignored.
  void amend(std::string_view name, const Told& told);
  /// A table for people, one line each.
  std::string text() const;
};

}  // namespace exportguard::guard
