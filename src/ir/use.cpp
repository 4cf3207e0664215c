#include <utility>

#include "exportguard/ir/graph.h"

namespace exportguard::ir {

Use::Use(Node& user, std::size_t index, Value* value) : user_(&user), index_(index) { link(value); }

// The neighbours in the list point at the object itself, so a move puts the new object in the place of the old one.
Use::Use(Use&& other) noexcept
    : user_(other.user_),
      index_(other.index_),
      value_(std::exchange(other.value_, nullptr)),
      next_(std::exchange(other.next_, nullptr)),
      prev_(std::exchange(other.prev_, nullptr)) {
  if (prev_ != nullptr) *prev_ = this;
  if (next_ != nullptr) next_->prev_ = &next_;
}

Use& Use::operator=(Use&& other) noexcept {
  if (this == &other) return *this;
  unlink();
  user_ = other.user_;
  index_ = other.index_;
  value_ = std::exchange(other.value_, nullptr);
  next_ = std::exchange(other.next_, nullptr);
  prev_ = std::exchange(other.prev_, nullptr);
  if (prev_ != nullptr) *prev_ = this;
  if (next_ != nullptr) next_->prev_ = &next_;
  return *this;
}

Use::~Use() { unlink(); }

void Use::link(Value* value) {
  unlink();
  if (value == nullptr) return;
  value_ = value;
  next_ = value->first_use_;
  prev_ = &value->first_use_;
  if (next_ != nullptr) next_->prev_ = &next_;
  value->first_use_ = this;
}

void Use::unlink() noexcept {
  if (value_ == nullptr) return;
  *prev_ = next_;
  if (next_ != nullptr) next_->prev_ = prev_;
  value_ = nullptr;
  next_ = nullptr;
  prev_ = nullptr;
}

}  // namespace exportguard::ir
