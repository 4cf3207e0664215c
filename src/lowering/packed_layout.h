#pragma once

#include "exportguard/lowering/context.h"

/// Packed sequences: the elements of all sequences in one list, step by step, the longest sequence first; `batch_sizes`
/// tells how many sequences have each step.
namespace exportguard::lowering {

struct PackedLayout {
  Value* is_element;  ///< bool[sequence, batch]: whether the sequence has that step
  Value* lengths;     ///< int64[batch]
  Value* positions;   ///< int64[sequence, batch]: the place of each element in the list, 0 where there is none
};

/// Of int64[sequence] sizes, for that many sequences.
PackedLayout layout_of_batches(LoweringContext& ctx, Value* batch_sizes, const Size& batch);

/// [sequence, batch, ...] from the list; anything where there is no element.
Value* unpacked(LoweringContext& ctx, const PackedLayout& layout, Value* data);

/// The list from [sequence, batch, ...].
Value* packed(LoweringContext& ctx, const PackedLayout& layout, Value* padded);

}  // namespace exportguard::lowering
