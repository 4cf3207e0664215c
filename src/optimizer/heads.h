#pragma once

#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {

/// Whether the node is the Transpose between [batch, sequence, heads, size] and [batch, heads, sequence, size].
bool swaps_heads(const ir::Node* node);

/// [batch, sequence, heads, size] as [batch, sequence, heads * size].
Value& heads_joined(Rewriter& rewriter, Value& x);

/// x of rank 4 if `value` is x with each head (axis 1) repeated, one copy after the other; else null.
Value* repeated_heads(const Value* value);

/// Whether heads of keys and values, both as they are before they are repeated, serve as many heads of queries each:
/// the query heads 0 to n-1 the first one, and so on. Without either of the two they do not.
bool shares_heads(const Value& query, const Value* key, const Value* value);

}  // namespace exportguard::optimizer
