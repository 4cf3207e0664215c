#pragma once

#include <cstdint>
#include <span>

#include "exportguard/ir/tensor.h"

namespace exportguard::ir {

/// The parts one behind the other along an axis, which is not negative. Nothing is copied: the parts are read when
/// bytes are asked for, a piece at a time. `Tensor::aten` of it copies the elements when it is first called, and keeps
/// them.
/// @throws InvalidArgument unless there are parts, of one dtype of whole bytes, with sizes that are equal but along the
///   axis.
Tensor joined(std::span<const Tensor> parts, std::int64_t axis);

}  // namespace exportguard::ir
