#include "exportguard/evaluator/interruption.h"

#include <utility>

namespace exportguard::evaluator {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPause{50};

thread_local Interruptible* innermost = nullptr;

}  // namespace

Interruptible::Interruptible(std::function<bool()> is_to_end)
    : is_to_end_(std::move(is_to_end)), next_(Clock::now() + kPause), outer_(std::exchange(innermost, this)) {}

Interruptible::~Interruptible() { innermost = outer_; }

void Interruptible::ask() {
  if (innermost == nullptr) return;
  const Clock::time_point now = Clock::now();
  if (now < innermost->next_) return;
  innermost->next_ = now + kPause;
  if (innermost->is_to_end_()) throw Interrupted();
}

}  // namespace exportguard::evaluator
