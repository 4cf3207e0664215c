#include "exportguard/guard/patch_stack.h"

#include <fmt/format.h>

#include <utility>

namespace exportguard::guard {
namespace {

std::string describe_failure(const Change& change, const char* why) {
  return fmt::format("{}: {}", change.target(), why);
}

/// Returns the failure, empty if there was none.
std::string undo_one(Change& change) {
  try {
    change.undo();
    return {};
  } catch (const std::exception& error) {
    return describe_failure(change, error.what());
  } catch (...) {
    return describe_failure(change, "unknown error");
  }
}

}  // namespace

PatchStack::~PatchStack() noexcept { unwind_to(0); }

void PatchStack::apply(std::unique_ptr<Change> change) {
  // The slot comes first: once the change is made, keeping it must not fail.
  changes_.push_back(nullptr);
  try {
    change->apply();
  } catch (...) {
    changes_.pop_back();
    throw;
  }
  changes_.back() = std::move(change);
}

std::vector<std::string> PatchStack::unwind_to(std::size_t size) noexcept {
  std::vector<std::string> failures;
  while (changes_.size() > size) {
    const std::unique_ptr<Change> change = std::move(changes_.back());
    changes_.pop_back();
    try {
      std::string failure = undo_one(*change);
      if (!failure.empty()) failures.push_back(std::move(failure));
    } catch (...) {
      // Only the text of a failure was lost, for want of memory; the other changes still have to be undone.
      continue;
    }
  }
  return failures;
}

}  // namespace exportguard::guard
