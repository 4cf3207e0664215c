#pragma once

#include <c10/core/ScalarType.h>

#include "exportguard/common/dtypes.h"

namespace exportguard {

/// @throws InvalidArgument for a torch dtype without an ONNX counterpart (quantized types, complex32, bits).
DType from_scalar_type(c10::ScalarType type);

/// @throws InvalidArgument for strings and the undefined type.
c10::ScalarType to_scalar_type(DType dtype);

/// The dtype that torch computes with when two tensors of these dtypes meet (`torch.promote_types`).
DType promote_types(DType a, DType b);

}  // namespace exportguard
