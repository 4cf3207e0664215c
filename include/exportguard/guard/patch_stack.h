#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
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

  /// Applies `change` and keeps it. If it throws, nothing is kept and nothing has changed. A change may bring about
  /// others, as an import does; those are undone before it.
  void apply(std::unique_ptr<Change> change) { apply(std::move(change), owner_); }

  /// Whose the changes are that are applied from now on; returns whose they were. 0, at first: of nobody who could
  /// stay.
  std::uint64_t exchange_owner(std::uint64_t owner) noexcept { return std::exchange(owner_, owner); }

  std::size_t size() const noexcept { return entries_.size(); }

  /// Undoes the changes above the first `size`, last first. One that cannot be undone does not stop the others:
  /// it is described in the result, "<target>: <why>".
  std::vector<std::string> unwind_to(std::size_t size) noexcept { return unwind_to(size, nullptr); }

  /// As above; then makes those changes again, in their order, whose owner `stays`. One that fails is described too.
  std::vector<std::string> unwind_to(std::size_t size, const std::function<bool(std::uint64_t)>& stays) noexcept;

 private:
  void apply(std::unique_ptr<Change> change, std::uint64_t owner);

  struct Entry {
    std::unique_ptr<Change> change;  ///< null while it is being applied
    std::uint64_t owner;
  };

  std::vector<Entry> entries_;
  std::uint64_t owner_ = 0;
};

}  // namespace exportguard::guard
