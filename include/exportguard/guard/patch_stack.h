#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "exportguard/guard/change.h"

namespace exportguard::guard {

/// The changes that are in force, in the order they were made. Owns them. Not thread-safe: see `Session`.
class PatchStack {
 public:
  PatchStack() = default;
  PatchStack(const PatchStack&) = delete;
  PatchStack& operator=(const PatchStack&) = delete;
  /// Undoes everything, last first.
  ~PatchStack() noexcept;

  /// Applies `change` and keeps it. If it throws, nothing is kept and nothing has changed.
  void apply(std::unique_ptr<Change> change);

  std::size_t size() const noexcept { return changes_.size(); }

  /// Undoes the changes above the first `size`, last first. One that cannot be undone does not stop the others:
  /// it is described in the result, "<target>: <why>".
  std::vector<std::string> unwind_to(std::size_t size) noexcept;

 private:
  std::vector<std::unique_ptr<Change>> changes_;
};

}  // namespace exportguard::guard
