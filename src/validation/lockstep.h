#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "exportguard/evaluator/value.h"
#include "exportguard/ir/graph.h"
#include "validation/segment.h"

namespace exportguard::validation {

/// A run of the reference in a thread of its own, which stands still when it is further ahead than `window` bytes of
/// values that nobody has taken. It never waits for somebody who waits for it.
class ReferenceRun {
 public:
  /// Gives values to `wanted` of `reference`; all must outlive the run.
  ReferenceRun(const ir::Model& reference, std::span<const evaluator::Value> inputs, const std::string& device,
               const Values& wanted, std::size_t window);
  /// Ends the run where it stands.
  ~ReferenceRun();
  ReferenceRun(const ReferenceRun&) = delete;
  ReferenceRun& operator=(const ReferenceRun&) = delete;

  /// The content of a wanted value, as soon as it is made, and once; nothing if the run ended without it.
  /// @throws what ended the run.
  std::optional<evaluator::Value> take(const ir::Value& value);

 private:
  struct Stopped {};  // thrown out of the observer: nobody is interested any more

  void put(const ir::Value& value, const evaluator::Value& content);

  const Values& wanted_;
  std::size_t window_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<const ir::Value*, evaluator::Value> made_;
  std::size_t bytes_ = 0;
  bool is_awaited_ = false;
  bool is_stopped_ = false;
  bool is_over_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace exportguard::validation
