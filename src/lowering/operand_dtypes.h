#pragma once

#include "exportguard/lowering/context.h"

namespace exportguard::lowering {

/// Refuses dtypes that torch's kernels refuse and its shape functions let pass, so that a model that eager cannot run
/// is no file that runs: products of tensors of two dtypes, norms whose weights have another dtype, softmax of
/// integers.
/// @throws LoweringError
void require_dtypes_of_eager(const LoweringContext& ctx);

}  // namespace exportguard::lowering
