#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "exportguard/guard/patch_stack.h"

namespace exportguard::guard {

/// The guards that are open in this process. They share one stack, since what they change is shared by the process.
///
/// One thread at a time may have guards open. A guard that ends before one that was opened inside it keeps its changes
/// until the inner one ends, so that every change is undone in reverse order whatever the order of the ends.
class Session {
 public:
  static Session& process();

  /// Opens a frame on top and returns its identity.
  /// @throws GuardError if another thread has a guard open.
  std::uint64_t open();

  /// Ends the frame and undoes what can be undone; returns what could not be restored. From another thread than the one
  /// that opened it, the changes are undone only if no other frame is open. Never throws; an unknown frame is ignored.
  std::vector<std::string> close(std::uint64_t frame) noexcept;

  /// @throws GuardError if the calling thread is not the one that opened the guard.
  void require_owner(const char* what) const;

  /// For the thread that opened the top frame alone.
  PatchStack& stack() noexcept { return stack_; }

  /// Whether a patch of this name is in force.
  bool is_installed(const std::string& name) const noexcept { return installed_.contains(name); }
  /// Notes that the frame installed the patch.
  void note_installed(const std::string& name, std::uint64_t frame) { installed_.emplace(name, frame); }

  /// The number of guards that are open, one inside the other.
  std::size_t depth() const noexcept;

 private:
  struct Frame {
    std::uint64_t id;
    std::size_t mark;  ///< size of the stack before its first change
    bool ended = false;
  };

  bool end_frame(std::uint64_t id) noexcept;
  std::vector<std::string> unwind_ended_frames() noexcept;
  void release_if_empty() noexcept;

  mutable std::mutex mutex_;  ///< guards owner_ and frames_; never held while a change is applied or undone
  std::thread::id owner_;
  std::vector<Frame> frames_;
  std::map<std::string, std::uint64_t> installed_;
  PatchStack stack_;
  std::uint64_t next_id_ = 1;
};

}  // namespace exportguard::guard
