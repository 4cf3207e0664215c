#pragma once

#include <variant>
#include <vector>

#include "exportguard/ir/tensor.h"

namespace exportguard::evaluator {

/// What a graph is given and returns: a tensor, a sequence of values, or nothing (an optional that is empty).
class Value {
 public:
  Value() = default;                                                     ///< nothing
  Value(ir::Tensor tensor) : content_(std::move(tensor)) {}              // NOLINT: a tensor is a value
  Value(std::vector<Value> sequence) : content_(std::move(sequence)) {}  // NOLINT

  bool is_none() const { return std::holds_alternative<std::monostate>(content_); }
  const ir::Tensor* find_tensor() const { return std::get_if<ir::Tensor>(&content_); }                    ///< or null
  const std::vector<Value>* find_sequence() const { return std::get_if<std::vector<Value>>(&content_); }  ///< or null
  const ir::Tensor& tensor() const;  ///< @throws InvalidArgument if it is none

 private:
  std::variant<std::monostate, ir::Tensor, std::vector<Value>> content_;
};

}  // namespace exportguard::evaluator
