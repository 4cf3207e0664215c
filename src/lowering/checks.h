#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exportguard/lowering/context.h"

/// What a file says of data that torch refuses. ONNX has no assertion; every runtime for CPUs looks whether an element
/// that a Gather takes is there.
namespace exportguard::lowering {

/// `numbers`, int64 of any shape, in a file that stops where `holds`, bool of rank 0, is false.
Value* stops_unless(LoweringContext& ctx, Value* holds, Value* numbers);

/// `x`, of any dtype, in a file that stops where `holds`, bool of rank 0 or null for true, is false.
Value* whole_if(LoweringContext& ctx, Value* holds, Value* x);

/// Bool of rank 0: none of these axes is of size 0; null where that is known. For operators that runtimes do not return
/// from otherwise, or end the process at.
/// @throws LoweringError with that reason if such an axis is known to be empty.
Value* find_entries(LoweringContext& ctx, Value* x, const std::vector<std::int64_t>& axes, const std::string& reason);

/// Bool of rank 0: no element is below `least`.
Value* none_below(LoweringContext& ctx, Value* numbers, std::int64_t least);

/// Bool of rank 0: along its last axis no element is below the one before it.
Value* never_falls(LoweringContext& ctx, Value* numbers);

}  // namespace exportguard::lowering
