#pragma once

#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "exportguard/guard/declaration.h"

namespace exportguard::guard {

/// The patches that are known, in the order they were declared. Thread-safe.
class Registry {
 public:
  using Entry = std::shared_ptr<const PatchDeclaration>;

  /// The one of this process, which lives until it ends. The Python package declares its patches here.
  static Registry& process();

  /// @throws GuardError if the declaration has no name, no target or no install function, or if its name or one of its
  /// targets is already claimed.
  void add(PatchDeclaration declaration);

  /// Forgets the declaration. A guard that is open keeps it. Returns whether it was known.
  bool remove(std::string_view name);

  /// Null if there is none.
  Entry find(std::string_view name) const;
  /// @throws GuardError if there is none.
  Entry get(std::string_view name) const;

  /// As they are now; later additions do not show.
  std::vector<Entry> entries() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

/// @throws GuardError if the declaration is incomplete.
void require_complete(const PatchDeclaration& declaration);
/// @throws GuardError if the two have the same name or share a target.
void require_distinct(const PatchDeclaration& first, const PatchDeclaration& second);
/// Whether they share a target.
bool same_target(const PatchDeclaration& first, const PatchDeclaration& second) noexcept;

}  // namespace exportguard::guard
