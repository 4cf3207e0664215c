#pragma once

#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {

/// Whether the node is the Transpose between [batch, sequence, heads, size] and [batch, heads, sequence, size].
bool swaps_heads(const ir::Node* node);

/// [batch, sequence, heads, size] as [batch, sequence, heads * size].
Value& heads_joined(Rewriter& rewriter, Value& x);

}  // namespace exportguard::optimizer
