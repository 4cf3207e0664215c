#pragma once

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace exportguard::ir {

/// Memory for many objects of one type, in blocks: those made one after the other lie side by side. Memory of a
/// destroyed object is used again; until then AddressSanitizer reports whoever reads it. All objects are destroyed
/// before the pool.
template <typename T>
class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Room for one object, which the caller constructs there.
  void* take() {
    if (free_ != nullptr) {
      ASAN_UNPOISON_MEMORY_REGION(free_, sizeof(Slot));
      return std::exchange(free_, free_->next);
    }
    if (used_ == size_) grow();
    return &blocks_.back()[used_++];
  }

  /// Room that `take` gave, its object destroyed.
  void give_back(void* room) noexcept {
    free_ = ::new (room) Slot{free_};
    ASAN_POISON_MEMORY_REGION(&free_->bytes[sizeof(Slot*)], sizeof(Slot) - sizeof(Slot*));
  }

 private:
  static constexpr std::size_t kSmallest = 4;  // a branch has a node or two
  static constexpr std::size_t kLargest = 512;

  union Slot {
    Slot* next;
    alignas(T) std::byte bytes[sizeof(T)];
  };

  void grow() {
    const std::size_t size = std::clamp(2 * size_, kSmallest, kLargest);
    blocks_.push_back(std::make_unique_for_overwrite<Slot[]>(size));
    size_ = size;
    used_ = 0;
  }

  std::vector<std::unique_ptr<Slot[]>> blocks_;
  std::size_t size_ = 0;  // of the last block
  std::size_t used_ = 0;  // of the last block
  Slot* free_ = nullptr;
};

}  // namespace exportguard::ir
