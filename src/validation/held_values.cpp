#include "validation/held_values.h"

#include "validation/judgement.h"

namespace exportguard::validation {

void HeldValues::put(std::size_t pair, evaluator::Value value) {
  const std::size_t size = bytes_of(value);
  while (!is_kept_ && bytes_ + size > most_bytes_ && !whole_.empty()) let_go_of_oldest();
  if (bytes_ + size > most_bytes_) {
    entries_[pair] = {form_of(value), false};
    return;
  }
  entries_[pair] = {std::move(value), true};
  bytes_ += size;
  whole_.push_back(pair);
}

const evaluator::Value* HeldValues::find(std::size_t pair) const {
  return entries_[pair].is_whole ? &entries_[pair].value : nullptr;
}

void HeldValues::let_go_of_oldest() {
  Entry& oldest = entries_[whole_.front()];
  whole_.pop_front();
  bytes_ -= bytes_of(oldest.value);
  oldest = {form_of(oldest.value), false};
}

}  // namespace exportguard::validation
