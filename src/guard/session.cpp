#include "exportguard/guard/session.h"

#include <fmt/format.h>
#include <fmt/std.h>

#include <algorithm>

#include "exportguard/common/errors.h"

namespace exportguard::guard {

Session& Session::process() {
  // Never destroyed: the changes of a guard that is still open at exit may refer to an interpreter that is gone.
  static auto* const session = new Session;
  return *session;
}

std::uint64_t Session::open() {
  const std::lock_guard lock(mutex_);
  const auto self = std::this_thread::get_id();
  if (owner_ != std::thread::id() && owner_ != self)
    throw GuardError(
        fmt::format("thread {} has a guard open, so thread {} cannot open one: patches change the whole process; "
                    "end that guard first, or export in one thread",
                    owner_, self));
  frames_.push_back({next_id_, stack_.size()});
  owner_ = self;
  return next_id_++;
}

void Session::require_owner(const char* what) const {
  const std::lock_guard lock(mutex_);
  const auto self = std::this_thread::get_id();
  if (owner_ == self) return;
  throw GuardError(fmt::format("cannot {} from thread {}: the guard belongs to thread {}", what, self, owner_));
}

std::size_t Session::depth() const noexcept {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::ranges::count_if(frames_, [](const Frame& frame) { return !frame.ended; }));
}

/// Marks the frame and says whether the caller is to unwind.
bool Session::end_frame(std::uint64_t id) noexcept {
  const std::lock_guard lock(mutex_);
  const auto it = std::ranges::find_if(frames_, [&](const Frame& frame) { return frame.id == id; });
  if (it == frames_.end() || it->ended) return false;
  it->ended = true;
  const auto self = std::this_thread::get_id();
  const bool none_open = std::ranges::all_of(frames_, [](const Frame& frame) { return frame.ended; });
  if (owner_ != self && !none_open) return false;  // the owner may be at work on the stack, and unwinds it later
  owner_ = self;
  return true;
}

std::vector<std::string> Session::unwind_ended_frames() noexcept {
  std::vector<std::string> failures;
  while (!frames_.empty() && frames_.back().ended) {
    const Frame top = frames_.back();
    std::vector<std::string> of_frame = stack_.unwind_to(top.mark);
    std::erase_if(installed_, [&](const auto& entry) { return entry.second == top.id; });
    failures.insert(failures.end(), std::make_move_iterator(of_frame.begin()), std::make_move_iterator(of_frame.end()));
    const std::lock_guard lock(mutex_);
    frames_.pop_back();
  }
  return failures;
}

void Session::release_if_empty() noexcept {
  const std::lock_guard lock(mutex_);
  if (frames_.empty()) owner_ = std::thread::id();
}

std::vector<std::string> Session::close(std::uint64_t frame) noexcept {
  if (!end_frame(frame)) return {};
  std::vector<std::string> failures = unwind_ended_frames();
  release_if_empty();
  return failures;
}

}  // namespace exportguard::guard
