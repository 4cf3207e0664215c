#pragma once

#include <chrono>
#include <exception>
#include <functional>

namespace exportguard::evaluator {

/// An evaluation was ended from outside. It is no error of the model, and nothing within the library takes it for one.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "the evaluation was interrupted"; }
};

/// While it lives, what this thread evaluates asks in between nodes, about every 50 ms, whether it is to end: a Loop
/// may have a condition that never becomes false, and no trip count. Scopes nest; the innermost is asked.
///
///     const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
///     const Interruptible scope([end] { return std::chrono::steady_clock::now() > end; });
///     program.run(inputs);  // throws Interrupted after ten seconds
class Interruptible {
 public:
  explicit Interruptible(std::function<bool()> is_to_end);
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  /// Asks the scope of this thread, if there is one and it is time. @throws Interrupted
  static void ask();

 private:
  std::function<bool()> is_to_end_;
  std::chrono::steady_clock::time_point next_;
  Interruptible* outer_;
};

}  // namespace exportguard::evaluator
