#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace exportguard::ir {

/// The elements in C order of a matrix that lies in memory column by column, or of some of its rows; nothing for any
/// other tensor. torch copies such a part element by element.
std::optional<at::Tensor> dense_of_columns(const at::Tensor& matrix);

}  // namespace exportguard::ir
