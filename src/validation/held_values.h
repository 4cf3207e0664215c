#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "exportguard/evaluator/value.h"

namespace exportguard::validation {

/// Right values by pair, for what is told of a divergence later. Beyond a bound the oldest are let go, and only their
/// form is kept.
class HeldValues {
 public:
  HeldValues(std::size_t pairs, std::size_t most_bytes) : entries_(pairs), most_bytes_(most_bytes) {}

  void put(std::size_t pair, evaluator::Value value);
  /// What is held stays from now on: later values that have no room are those that are let go.
  void keep() { is_kept_ = true; }

  const evaluator::Value* find(std::size_t pair) const;  ///< null if it was let go, or never there
  /// The value, or one element of its dtype and sizes; nothing of what was never there.
  const evaluator::Value& form(std::size_t pair) const { return entries_[pair].value; }

 private:
  struct Entry {
    evaluator::Value value;
    bool is_whole = false;
  };

  void let_go_of_oldest();

  std::vector<Entry> entries_;
  std::deque<std::size_t> whole_;  ///< in the order in which they came
  std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  bool is_kept_ = false;
};

}  // namespace exportguard::validation
