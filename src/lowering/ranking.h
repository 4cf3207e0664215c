#pragma once

#include "exportguard/lowering/context.h"

namespace exportguard::lowering {

/// Which elements to take along an axis and in what order. Equal elements keep their order, both ways; NaN is greater
/// than every number, as in torch.
struct Ranking {
  std::int64_t axis;
  bool is_descending;
};

struct Ranked {
  Value* values;     ///< in the dtype of the tensor
  Value* positions;  ///< int64
};

/// The first `count` elements along the axis; a tensor of rank 0 counts as a vector.
Ranked ranked(LoweringContext& ctx, Value* x, const Size& count, const Ranking& ranking);

/// All elements along the axis.
Ranked fully_ranked(LoweringContext& ctx, Value* x, const Ranking& ranking);

}  // namespace exportguard::lowering
