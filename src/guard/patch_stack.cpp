#include "exportguard/guard/patch_stack.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

namespace exportguard::guard {
namespace {

/// Runs `step`, which may end the life of the change, and appends why it failed, if it did.
template <class Step>
void note_failure(const Change& change, std::vector<std::string>& failures, const Step& step) noexcept {
  try {
    const std::string target = change.target();
    try {
      step();
    } catch (const std::exception& error) {
      failures.push_back(fmt::format("{}: {}", target, error.what()));
    } catch (...) {
      failures.push_back(fmt::format("{}: unknown error", target));
    }
  } catch (...) {
    // Only the text of a failure was lost, for want of memory; the other changes still have to be undone.
    return;
  }
}

}  // namespace

PatchStack::~PatchStack() noexcept { unwind_to(0); }

void PatchStack::apply(std::unique_ptr<Change> change, std::uint64_t owner) {
  // The slot comes first: once the change is made, keeping it must not fail.
  const std::size_t slot = entries_.size();
  entries_.push_back({nullptr, owner});

  try {
    change->apply();
  } catch (...) {
    // What it brought about stands above and stays; the slot between is then empty.
    if (entries_.size() == slot + 1) entries_.pop_back();
    throw;
  }
  entries_[slot].change = std::move(change);
}

std::vector<std::string> PatchStack::unwind_to(std::size_t size,
                                               const std::function<bool(std::uint64_t)>& stays) noexcept {
  std::vector<std::string> failures;
  std::vector<Entry> staying;
  while (entries_.size() > size) {
    Entry entry = std::move(entries_.back());
    entries_.pop_back();
    if (!entry.change) continue;
    note_failure(*entry.change, failures, [&] { entry.change->undo(); });
    if (stays && stays(entry.owner))
      note_failure(*entry.change, failures, [&] { staying.push_back(std::move(entry)); });
  }

  for (; !staying.empty(); staying.pop_back()) {
    Entry& entry = staying.back();
    note_failure(*entry.change, failures, [&] { apply(std::move(entry.change), entry.owner); });
  }
  return failures;
}

}  // namespace exportguard::guard
