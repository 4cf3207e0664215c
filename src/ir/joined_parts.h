#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <vector>

namespace exportguard::ir {

/// What stands behind a tensor made by `joined`.
class JoinedParts {
 public:
  JoinedParts(std::vector<at::Tensor> tensors, std::int64_t axis) : tensors_(std::move(tensors)), axis_(axis) {}

  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  std::int64_t axis() const { return axis_; }
  /// The elements in one piece; made once. Thread-safe.
  const at::Tensor& dense() const;

 private:
  std::vector<at::Tensor> tensors_;
  std::int64_t axis_;
  mutable std::once_flag is_made_;
  mutable at::Tensor dense_;
};

/// Null for a tensor that has its elements itself.
const JoinedParts* find_parts(const at::Tensor& tensor);

}  // namespace exportguard::ir
