#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "exportguard/guard/patch_stack.h"
#include "exportguard/guard/report.h"

namespace exportguard::guard {

/// The guards that are open in this process. They share one stack, since what they change is shared by the process.
///
/// Changes that come later, as when a module is imported, belong to the guard that waited for it: they are on the same
/// stack, and stand in for themselves again when a guard that was opened inside it takes back what lies below them.
///
/// One thread at a time may have guards open. A guard that ends before one that was opened inside it keeps its changes
/// until the inner one ends, so that every change is undone in reverse order whatever the order of the ends. A process
/// that is forked while guards are open has them too, as those of the thread that goes on in it.
class Session {
 public:
  static Session& process();

  /// Opens a frame on top and returns its identity. What its patches come to later is written into `report`, if there
  /// is one, until the frame is closed.
  /// @throws GuardError if another thread has a guard open, or one is just being closed.
  std::uint64_t open(Report* report = nullptr);

  /// Ends the frame and undoes what can be undone; returns what could not be restored. From another thread than the one
  /// that opened it, the changes are undone only if no other frame is open. Never throws; an unknown frame is ignored.
  /// One thread at a time undoes: a frame that ends while another one is at it, or while a change is being made, is
  /// left to that thread.
  std::vector<std::string> close(std::uint64_t frame) noexcept;

  /// @throws GuardError if the calling thread is not the one that opened the guard.
  void require_owner(const char* what) const;

  /// For the thread that opened the top frame alone, and while that is being opened.
  PatchStack& stack() noexcept { return stack_; }

  /// The frame on top; 0 if there is none.
  std::uint64_t top() const noexcept;

  /// Runs `install`, whose changes belong to the frame, whichever guards were opened inside it since. If it throws,
  /// what it did is undone before the exception leaves.
  /// @throws GuardError if the frame has ended, or from another thread than the one that opened it.
  void change_later(std::uint64_t frame, const std::function<void(PatchStack&)>& install);

  /// Whether the frame is open and the calling thread the one that opened it.
  bool is_ours(std::uint64_t frame) const noexcept;

  /// Writes into the report of the frame what a patch came to; nothing if it has ended.
  void amend(std::uint64_t frame, std::string_view patch, const Told& told);

  /// Whether a patch of this name is in force.
  bool is_installed(const std::string& name) const noexcept;
  /// Notes that the frame installed the patch.
  void note_installed(const std::string& name, std::uint64_t frame);

  /// The number of guards that are open, one inside the other.
  std::size_t depth() const noexcept;

 private:
  struct Frame {
    std::uint64_t id;
    std::size_t mark;  ///< size of the stack before its first change
    Report* report;    ///< null once it has ended
    bool ended = false;
  };

  /// Counts a change that is being made later; what ended meanwhile is undone behind the last one.
  class Work;

  Frame* find(std::uint64_t id) noexcept;  ///< with the mutex held
  bool is_open(std::uint64_t id) const noexcept;
  bool end_frame(std::uint64_t id) noexcept;
  bool begin_unwinding() noexcept;
  std::optional<Frame> next_ended() noexcept;
  std::vector<std::string> unwind_ended_frames() noexcept;
  void adopt() noexcept;

  /// Guards all below but the stack; never held while a change is applied or undone.
  mutable std::mutex mutex_;
  std::thread::id owner_;
  std::vector<Frame> frames_;
  std::map<std::string, std::uint64_t> installed_;
  bool unwinding_ = false;  ///< by one thread
  int working_ = 0;         ///< changes that the owner is making later, one bringing about the other

  /// Of the thread that unwinds, else of the owner.
  PatchStack stack_;
  std::uint64_t next_id_ = 1;
};

}  // namespace exportguard::guard
