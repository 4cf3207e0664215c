#include "exportguard/guard/session.h"

#include <fmt/format.h>
#include <fmt/std.h>
#include <pthread.h>

#include <algorithm>
#include <cstdio>

#include "exportguard/common/errors.h"

namespace exportguard::guard {

Session& Session::process() {
  // Never destroyed: the changes of a guard that is still open at exit may refer to an interpreter that is gone.
  static auto* const session = [] {
    auto* const made = new Session;
    // A child has the thread alone that forked: it takes over the guards, whichever thread opened them.
    ::pthread_atfork([] { process().mutex_.lock(); }, [] { process().mutex_.unlock(); },
                     [] {
                       process().adopt();
                       process().mutex_.unlock();
                     });
    return made;
  }();
  return *session;
}

void Session::adopt() noexcept {
  if (owner_ != std::thread::id()) owner_ = std::this_thread::get_id();
}

std::uint64_t Session::open(Report* report) {
  const std::lock_guard lock(mutex_);
  const auto self = std::this_thread::get_id();
  if (owner_ != std::thread::id() && owner_ != self)
    throw GuardError(
        fmt::format("thread {} has a guard open, so thread {} cannot open one: patches change the whole process; "
                    "end that guard first, or export in one thread",
                    owner_, self));

  if (unwinding_)
    throw GuardError("a guard cannot be opened while another one restores what it changed; open it afterwards");
  frames_.push_back({next_id_, stack_.size(), report});
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

std::uint64_t Session::top() const noexcept {
  const std::lock_guard lock(mutex_);
  return frames_.empty() ? 0 : frames_.back().id;
}

bool Session::is_installed(const std::string& name) const noexcept {
  const std::lock_guard lock(mutex_);
  return installed_.contains(name);
}

void Session::note_installed(const std::string& name, std::uint64_t frame) {
  const std::lock_guard lock(mutex_);
  installed_.emplace(name, frame);
}

Session::Frame* Session::find(std::uint64_t id) noexcept {
  const auto it = std::ranges::find(frames_, id, &Frame::id);
  return it == frames_.end() || it->ended ? nullptr : &*it;
}

bool Session::is_open(std::uint64_t id) const noexcept {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(frames_, [&](const Frame& frame) { return frame.id == id && !frame.ended; });
}

// ---------------------------------------------------------------------------------------------------- later changes

bool Session::is_ours(std::uint64_t frame) const noexcept {
  const std::lock_guard lock(mutex_);
  const bool is_open = std::ranges::any_of(frames_, [&](const Frame& each) { return each.id == frame && !each.ended; });
  return is_open && owner_ == std::this_thread::get_id();
}

class Session::Work {
 public:
  Work(Session& session, std::uint64_t frame) : session_(session) {
    const std::lock_guard lock(session_.mutex_);
    if (session_.owner_ != std::this_thread::get_id())
      throw GuardError("a patch waited for a module that another thread imports; import it in the thread of the guard");
    if (session_.find(frame) == nullptr) throw GuardError("the guard whose patch waited has ended");
    ++session_.working_;
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  ~Work() {
    {
      const std::lock_guard lock(session_.mutex_);
      --session_.working_;
    }
    if (!session_.begin_unwinding()) return;
    for (const std::string& failure : session_.unwind_ended_frames())
      std::fprintf(stderr, "exportguard: not restored: %s\n", failure.c_str());
  }

 private:
  Session& session_;
};

void Session::change_later(std::uint64_t frame, const std::function<void(PatchStack&)>& install) {
  const Work work(*this, frame);
  const std::size_t size = stack_.size();
  const std::uint64_t before = stack_.exchange_owner(frame);

  try {
    install(stack_);
  } catch (...) {
    stack_.exchange_owner(before);
    stack_.unwind_to(size);
    throw;
  }
  stack_.exchange_owner(before);
}

void Session::amend(std::uint64_t frame, std::string_view patch, const Told& told) {
  const std::lock_guard lock(mutex_);
  if (const Frame* found = find(frame); found && found->report) found->report->amend(patch, told);
}

// ---------------------------------------------------------------------------------------------------- the end

/// Marks the frame and says whether it was open.
bool Session::end_frame(std::uint64_t id) noexcept {
  const std::lock_guard lock(mutex_);
  Frame* const frame = find(id);
  if (frame == nullptr) return false;
  frame->ended = true;
  frame->report = nullptr;
  return true;
}

/// Whether the caller is to unwind; it is then the only one, until `next_ended` finds nothing more.
bool Session::begin_unwinding() noexcept {
  const std::lock_guard lock(mutex_);
  if (unwinding_ || working_ > 0) return false;
  const auto self = std::this_thread::get_id();
  const bool none_open = std::ranges::all_of(frames_, [](const Frame& frame) { return frame.ended; });
  if (owner_ != self && !none_open) return false;  // the owner may be at work on the stack, and unwinds it later
  unwinding_ = true;
  owner_ = self;
  return true;
}

/// The top frame if it has ended. If not, the unwinding is over, and under the same lock: whoever ends a frame now
/// unwinds it.
std::optional<Session::Frame> Session::next_ended() noexcept {
  const std::lock_guard lock(mutex_);
  if (!frames_.empty() && frames_.back().ended) return frames_.back();
  unwinding_ = false;
  if (frames_.empty()) owner_ = std::thread::id();
  return std::nullopt;
}

std::vector<std::string> Session::unwind_ended_frames() noexcept {
  std::vector<std::string> failures;
  while (const std::optional<Frame> top = next_ended()) {
    const auto stays = [this](std::uint64_t owner) { return is_open(owner); };
    std::vector<std::string> of_frame = stack_.unwind_to(top->mark, stays);
    failures.insert(failures.end(), std::make_move_iterator(of_frame.begin()), std::make_move_iterator(of_frame.end()));

    const std::lock_guard lock(mutex_);
    std::erase_if(installed_, [&](const auto& entry) { return entry.second == top->id; });
    frames_.pop_back();
  }
  return failures;
}

std::vector<std::string> Session::close(std::uint64_t frame) noexcept {
  if (!end_frame(frame) || !begin_unwinding()) return {};
  return unwind_ended_frames();
}

}  // namespace exportguard::guard
