#include "exportguard/guard/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "exportguard/common/errors.h"

namespace exportguard::guard {
namespace {

const std::string* shared_target(const PatchDeclaration& first, const PatchDeclaration& second) noexcept {
  for (const std::string& target : first.targets)
    if (std::ranges::find(second.targets, target) != second.targets.end()) return &target;
  return nullptr;
}

}  // namespace

void require_complete(const PatchDeclaration& declaration) {
  if (declaration.name.empty()) throw GuardError("a patch needs a name");
  if (declaration.targets.empty() && declaration.searches.empty())
    throw GuardError(
        fmt::format("patch '{}' names no target; give the dotted path of what it changes", declaration.name));
  if (!declaration.install) throw GuardError(fmt::format("patch '{}' has no install function", declaration.name));
}

bool same_target(const PatchDeclaration& first, const PatchDeclaration& second) noexcept {
  return shared_target(first, second) != nullptr;
}

void require_distinct(const PatchDeclaration& first, const PatchDeclaration& second) {
  if (first.name == second.name) throw GuardError(fmt::format("patch '{}' is declared twice", first.name));
  if (const std::string* target = shared_target(first, second))
    throw GuardError(
        fmt::format("patches '{}' and '{}' both claim {}; one target has one patch", first.name, second.name, *target));
}

Registry& Registry::process() {
  // Never destroyed: its functions may refer to an interpreter that is gone when static objects are.
  static auto* const registry = new Registry;
  return *registry;
}

void Registry::add(PatchDeclaration declaration) {
  require_complete(declaration);
  auto entry = std::make_shared<const PatchDeclaration>(std::move(declaration));
  const std::lock_guard lock(mutex_);
  for (const Entry& known : entries_) require_distinct(*known, *entry);
  entries_.push_back(std::move(entry));
}

bool Registry::remove(std::string_view name) {
  Entry removed;  // released after the lock, since its functions may need another one
  const std::lock_guard lock(mutex_);
  const auto it = std::ranges::find_if(entries_, [&](const Entry& entry) { return entry->name == name; });
  if (it == entries_.end()) return false;
  removed = *it;
  entries_.erase(it);
  return true;
}

Registry::Entry Registry::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto it = std::ranges::find_if(entries_, [&](const Entry& entry) { return entry->name == name; });
  return it == entries_.end() ? nullptr : *it;
}

Registry::Entry Registry::get(std::string_view name) const {
  Entry entry = find(name);
  if (!entry) throw GuardError(fmt::format("there is no patch named '{}'", name));
  return entry;
}

std::vector<Registry::Entry> Registry::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

}  // namespace exportguard::guard
